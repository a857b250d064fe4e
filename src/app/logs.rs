//! The logs that a configuration names: opened at the start, renewed by reloads.

use std::io;

use tracing_appender::non_blocking::WorkerGuard;

use crate::config::settings::{LogTarget, Telemetry};
use crate::telemetry::traces::{self, ExportGuard, SpanSink};
use crate::telemetry::{AuditLog, LineWriter, Metrics, OpenedTargets, RequestRecorder};

#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error(
        "cannot open the access log {0}: {1}; see that its folder is there and may be written to"
    )]
    Access(String, #[source] io::Error),
    #[error(
        "cannot open the audit log {0}: {1}; see that its folder is there and may be written to"
    )]
    Audit(String, #[source] io::Error),
    #[error("cannot start a thread that exports traces: {0}")]
    Traces(#[source] io::Error),
}

impl LogError {
    fn access(telemetry: &Telemetry) -> impl FnOnce(io::Error) -> LogError + '_ {
        |error| LogError::Access(name(&telemetry.access_log), error)
    }

    fn audit((target, error): (LogTarget, io::Error)) -> LogError {
        LogError::Audit(name(&target), error)
    }
}

fn name(target: &LogTarget) -> String {
    match target {
        LogTarget::File(path) => path.display().to_string(),
        // These are open already, and cannot fail to.
        LogTarget::Off | LogTarget::Stdout | LogTarget::Stderr => String::new(),
    }
}

#[derive(Debug)]
pub(crate) struct Logs {
    access: Option<LineWriter>,
    pub(crate) audit: AuditLog,
    spans: Option<SpanSink>,
    /// This process's name, for those who read spans.
    node: String,
    metrics: Metrics,
    /// Requests under way may still write to a log that was replaced, so all of them are kept.
    /// There is one for each time that a log had another target.
    guards: Vec<WorkerGuard>,
    exports: Vec<ExportGuard>,
}

impl Logs {
    /// # Errors
    /// If one of them cannot be opened.
    pub(crate) fn open(
        telemetry: &Telemetry,
        metrics: &Metrics,
        node: &str,
    ) -> Result<Logs, LogError> {
        let access =
            LineWriter::open(&telemetry.access_log).map_err(LogError::access(telemetry))?;
        let opened = OpenedTargets::open(&telemetry.audit_log).map_err(LogError::audit)?;
        let (access, access_guard) = access.unzip();
        let (audit, guards) = (AuditLog::nowhere(metrics), access_guard.into_iter().collect());
        let (spans, exports, node, metrics) = (None, Vec::new(), node.to_owned(), metrics.clone());
        let mut logs = Logs { access, audit, spans, node, metrics, guards, exports };
        logs.redirect_audit(opened, telemetry);
        logs.export_spans(telemetry)?;
        Ok(logs)
    }

    /// What is kept of each request of a configuration, if anything is.
    pub(crate) fn recorder(&self, telemetry: &Telemetry) -> Option<RequestRecorder> {
        RequestRecorder::new(telemetry, self.access.clone(), self.spans.clone())
    }

    fn export_spans(&mut self, telemetry: &Telemetry) -> Result<(), LogError> {
        let dropped = &self.metrics.trace_spans_dropped;
        let started = traces::start_export(&telemetry.traces, &self.node, dropped);
        let (spans, export) = started.map_err(LogError::Traces)?.unzip();
        self.spans = spans;
        self.exports.extend(export);
        Ok(())
    }

    /// Opens what has another target now, and has files opened anew that have the same.
    ///
    /// # Errors
    /// If one of them cannot be opened; then all stay as they are.
    pub(crate) fn renew(&mut self, old: &Telemetry, new: &Telemetry) -> Result<(), LogError> {
        let access = changed(&old.access_log, &new.access_log).map_err(LogError::access(new))?;
        let audit = match old.audit_log == new.audit_log {
            true => None,
            false => Some(OpenedTargets::open(&new.audit_log).map_err(LogError::audit)?),
        };
        if old.traces.exported() != new.traces.exported() {
            self.export_spans(new)?;
        }
        match access {
            Some(opened) => {
                let (lines, guard) = opened.unzip();
                self.access = lines;
                self.guards.extend(guard);
            }
            None => self.access.iter().for_each(LineWriter::reopen),
        }
        match audit {
            Some(opened) => self.redirect_audit(opened, new),
            None => self.audit.reopen(),
        }
        Ok(())
    }

    fn redirect_audit(&mut self, opened: OpenedTargets, telemetry: &Telemetry) {
        self.audit.redirect(opened.lines);
        self.audit.set_streamed(telemetry.audit_log.redis);
        self.guards.extend(opened.guards);
    }
}

type OpenedLog = Option<(LineWriter, WorkerGuard)>;

/// `None` if the target is the same.
fn changed(old: &LogTarget, new: &LogTarget) -> io::Result<Option<OpenedLog>> {
    if old == new { Ok(None) } else { LineWriter::open(new).map(Some) }
}
