-- Requests of $CALLERS callers by turns, and wrk's summary as one line of JSON.
local callers = tonumber(os.getenv("CALLERS"))
local requests = {}
local turn = 0

function init()
  for caller = 1, callers do
    requests[caller] = wrk.format("GET", "/item", { ["x-caller"] = "caller-" .. caller })
  end
end

function request()
  turn = turn % callers + 1
  return requests[turn]
end

function done(summary)
  local e = summary.errors
  io.write(string.format('\nSUMMARY {"requests":%d,"refused":%d,"socket_errors":%d}\n',
    summary.requests, e.status, e.connect + e.read + e.write + e.timeout))
end
