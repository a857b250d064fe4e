//! A gateway that has run out of file descriptors reports that as its own fault.

use crate::support::gateway::program_with_files;
use crate::support::{Client, HeldUpstream, Scratch, Weir, get, wait_until};

#[test]
fn lack_of_file_descriptors_is_reported_as_the_gateways_fault() {
    const CLIENTS: usize = 50;
    let held = HeldUpstream::start();
    let config = held.config().open().server("workers = 1\nmax_connections = 60");
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    // Room for the clients, and not for as many upstream connections.
    let weir = Weir::start_with(program_with_files(90), scratch, file);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| weir.connect()).collect();
    // One that is not accepted yet would find no room behind the upstream connections of others.
    wait_until("all are accepted", || {
        weir.metrics().value("weir_connections", &[]) == Some(CLIENTS as f64)
    });
    clients.iter_mut().for_each(|client| client.send(get("/held")));
    let answered = |clients: &[Client]| {
        clients.iter().filter(|it| crate::support::slots::is_answered(it)).count()
    };
    wait_until("some are inside, and the rest is answered", || {
        held.held_count() > 0 && held.held_count() + answered(&clients) == CLIENTS
    });
    held.release("/held");
    let answers: Vec<_> = clients.iter_mut().map(Client::response).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty(), "there was room for all");
    for answer in refused {
        assert_eq!((answer.status, answer.error()), (503, "overloaded".into()));
        assert_eq!(answer.one("retry-after"), "1");
    }
    wait_until("it says so", || weir.output().contains("raise the limit on open files"));
    assert!(!weir.output().contains("cannot be reached"), "{}", weir.output());
    drop(clients);
    wait_until("there is room again", || weir.get("/").status == 200);
    let labels = [("upstream", "api"), ("error", "unreachable")];
    assert_eq!(weir.metrics().value("weir_upstream_errors_total", &labels), Some(0.0));
}
