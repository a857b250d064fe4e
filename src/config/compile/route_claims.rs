//! Which requests are taken, to find two routes of which neither is the more specific.

use std::collections::HashMap;
use std::ops::Range;

use http::Method;

use crate::config::diagnostic::Diagnostic;
use crate::config::file::Reporter;
use crate::config::settings::{ConditionRank, HostPattern, PathPattern, Segment};
use crate::limit::Condition;

/// The requests that a route is for.
#[derive(Clone, Copy)]
pub(super) struct RoutePattern<'r> {
    pub(super) host: &'r HostPattern,
    pub(super) path: &'r PathPattern,
    pub(super) methods: &'r [Method],
    pub(super) conditions: &'r [Condition],
}

#[derive(Default)]
pub(super) struct RouteClaims {
    claims: Vec<RouteClaim>,
    /// Those of one host and one path.
    places: HashMap<(HostPattern, PathPattern), Vec<usize>>,
}

struct RouteClaim {
    methods: Vec<Method>,
    conditions: Vec<Condition>,
    rank: ConditionRank,
    /// As messages call the route.
    title: String,
    span: Range<usize>,
}

impl RouteClaims {
    pub(super) fn claim(
        &mut self,
        requests: RoutePattern<'_>,
        name: Option<&str>,
        span: Range<usize>,
    ) {
        let RoutePattern { host, path, methods, conditions } = requests;
        let place = self.places.entry((host.clone(), shape(path))).or_default();
        place.push(self.claims.len());
        self.claims.push(RouteClaim {
            methods: methods.to_vec(),
            conditions: conditions.to_vec(),
            rank: ConditionRank::of(conditions),
            title: name.map_or_else(|| "this route".to_owned(), |name| format!("route `{name}`")),
            span,
        });
    }

    /// Notes each route that takes requests of an earlier one. All have to be known: a route that asks
    /// for what two others ask for decides between them.
    pub(super) fn report_conflicts(&self, reporter: &Reporter) {
        for place in self.places.values() {
            let claims: Vec<&RouteClaim> = place.iter().map(|index| &self.claims[*index]).collect();
            for (at, claim) in claims.iter().enumerate() {
                let earlier = claims[..at].iter().find(|it| {
                    it.conflicts_with(claim) && !claims.iter().any(|third| third.decides(it, claim))
                });
                if let Some(earlier) = earlier {
                    reporter.report(claim.conflict(earlier));
                }
            }
        }
    }
}

impl RouteClaim {
    /// Whether a request may match both, and neither is more specific.
    fn conflicts_with(&self, other: &RouteClaim) -> bool {
        let overlaps =
            |condition: &Condition| other.conditions.iter().all(|it| it.overlaps(condition));
        self.rank == other.rank
            && overlap(&self.methods, &other.methods)
            && self.conditions.iter().all(overlaps)
    }

    /// Whether this route takes every request that matches both of two others.
    fn decides(&self, one: &RouteClaim, other: &RouteClaim) -> bool {
        let asked = |it: &Condition| one.conditions.contains(it) || other.conditions.contains(it);
        let takes =
            |method: &Method| self.methods.contains(method) || !other.methods.contains(method);
        self.rank > one.rank
            && self.methods.is_empty() == one.methods.is_empty()
            && one.methods.iter().all(takes)
            && self.conditions.iter().all(asked)
    }

    fn conflict(&self, earlier: &RouteClaim) -> Diagnostic {
        let title = &self.title;
        let (message, help) = match self.conditions == earlier.conditions {
            true => (
                format!("{title} matches the same requests as an earlier one"),
                "change the `host`, `path`, `methods`, `headers` or `query` of one of them",
            ),
            false => (
                format!("{title} matches requests of an earlier one, and neither is more specific"),
                "ask for one more header or parameter in one of them, or add a route that asks for \
                 all that both ask for",
            ),
        };
        Diagnostic::error(self.span.clone(), message)
            .also(earlier.span.clone(), format!("{} is here", earlier.title))
            .help(help)
    }
}

/// A path without the names of its parameters, which choose nothing.
fn shape(path: &PathPattern) -> PathPattern {
    let segments = path.segments.iter().map(|segment| match segment {
        Segment::Parameter(_) => Segment::Parameter(String::new()),
        literal => literal.clone(),
    });
    PathPattern { segments: segments.collect(), prefix: path.prefix }
}

/// No methods are all methods, and a route for some is more specific than one for all.
fn overlap(one: &[Method], other: &[Method]) -> bool {
    one.is_empty() == other.is_empty()
        && (one.is_empty() || one.iter().any(|method| other.contains(method)))
}
