-- $KEYS keys by turns, from $FIRST on, and wrk's summary as one line of JSON.
local first, keys = tonumber(os.getenv("FIRST")), tonumber(os.getenv("KEYS"))
local turn = 0

function request()
  turn = turn % keys + 1
  return "GET /item HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Key: key-" .. first + turn .. "\r\n\r\n"
end

function done(summary)
  local e = summary.errors
  io.write(string.format('\nSUMMARY {"requests":%d,"duration_us":%d,"refused_or_failed":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout))
end
