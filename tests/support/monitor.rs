//! The commands a Redis received: the lines of its MONITOR.

use std::sync::{Arc, Mutex};
use std::thread;

use super::redis::Redis;
use super::{PATIENCE, wait_until};

#[derive(Debug)]
pub(crate) struct Monitor<'a> {
    redis: &'a Redis,
    lines: Arc<Mutex<Vec<String>>>,
    marks: Mutex<usize>,
}

impl<'a> Monitor<'a> {
    #[track_caller]
    pub(crate) fn of(redis: &'a Redis) -> Monitor<'a> {
        // There may be no command for a long time.
        let mut resp = redis.connect(30 * PATIENCE).unwrap();
        resp.ask(&["MONITOR"]).unwrap().ok();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        // Ends with the server.
        thread::spawn(move || {
            while let Ok(line) = resp.line() {
                into.lock().unwrap().push(line);
            }
        });
        Monitor { redis, lines, marks: Mutex::new(0) }
    }

    /// Everything up to now, taken away.
    #[track_caller]
    pub(crate) fn take(&self) -> Vec<String> {
        let mark = {
            let mut marks = self.marks.lock().unwrap();
            *marks += 1;
            format!("\"mark-{}\"", *marks)
        };
        self.redis.command(&["ECHO", mark.trim_matches('"')]);
        wait_until("the monitor has caught up", || {
            self.lines.lock().unwrap().iter().any(|line| line.contains(&mark))
        });
        let mut lines = self.lines.lock().unwrap();
        let end = lines.iter().position(|line| line.contains(&mark)).unwrap();
        let mut taken: Vec<String> = lines.drain(..=end).collect();
        taken.pop();
        taken
    }

    /// The script calls since this was last asked that were decisions: those of heartbeats and probes
    /// have one key, `PREFIX:@…`. A decision's last key is its caller's fence.
    #[track_caller]
    pub(crate) fn take_decisions(&self) -> Vec<String> {
        let decides = |line: &String| !line.contains(" lua] ") && is_script(line);
        let is_ours = |line: &String| !first_key(line).contains(":@");
        self.take().into_iter().filter(|line| decides(line) && is_ours(line)).collect()
    }

    /// What decisions have written since this was last asked.
    #[track_caller]
    pub(crate) fn take_writes(&self) -> Vec<String> {
        const READS: [&str; 6] = ["MGET", "GET", "TIME", "PTTL", "TYPE", "EXISTS"];
        let reads = |line: &str| READS.iter().any(|it| verb(line).eq_ignore_ascii_case(it));
        let writes = |line: &String| line.contains(" lua] ") && !reads(line);
        let apart = |line: &String| line.contains(":@nodes") || line.contains(":@probe");
        self.take().into_iter().filter(|line| writes(line) && !apart(line)).collect()
    }
}

/// `"EVALSHA" "hash" "2" "key" …`.
fn first_key(line: &str) -> &str {
    line.split("\" \"").nth(3).unwrap_or_default()
}

/// The name of the command of a line: `1.2 [0 127.0.0.1:3] "EVALSHA" …`.
fn verb(line: &str) -> &str {
    line.split("] \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

fn is_script(line: &str) -> bool {
    ["EVALSHA", "EVAL", "FCALL"].iter().any(|it| verb(line).eq_ignore_ascii_case(it))
}
