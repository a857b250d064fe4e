//! What finding a route costs, for one route and for ten thousand.

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, Method};
use weir::config;
use weir::route::{LookupKey, RouteTable, normalize};

fn table(routes: usize) -> RouteTable {
    let mut text = String::new();
    for n in 0..routes {
        write!(
            text,
            "[[routes]]\nname = \"r{n}\"\npath = \"/v1/service-{n}/items/{{id}}\"\nupstream = \"echo\"\n"
        )
        .expect("a string takes all");
    }
    RouteTable::new(&config::parse("bench", &text).expect("the routes are good").settings.routes)
}

fn find(c: &mut Criterion) {
    for count in [1, 100, 10_000] {
        let table = table(count);
        let path = format!("/v1/service-{}/items/48211", count / 2);
        c.bench_function(&format!("find a route among {count}"), |bench| {
            let headers = HeaderMap::new();
            bench.iter(|| {
                let normal = normalize(black_box(&path)).expect("the path is good");
                table.find(LookupKey {
                    host: "api.example.com",
                    path: normal.matched.as_bytes(),
                    method: &Method::GET,
                    headers: &headers,
                    query: None,
                })
            });
        });
    }
}

criterion_group!(benches, find);
criterion_main!(benches);
