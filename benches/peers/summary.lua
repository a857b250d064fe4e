-- Prints wrk's own summary as one line of JSON, so that no unit has to be parsed back.
-- There is no response() hook on purpose: it would run for each request and slow wrk down.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\nSUMMARY {"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,' ..
    '"refused_or_failed":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
