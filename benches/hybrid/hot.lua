-- One hot key, at $PAUSE ms between two requests of a connection. With $GATEWAYS above 1 the load moves:
-- this wrk asks only in the seconds that are the turn of its gateway, $GATEWAY.
local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds; long micros; } instant;
  int gettimeofday(instant *, void *);
]]

local pause = tonumber(os.getenv("PAUSE"))
local gateway, gateways = tonumber(os.getenv("GATEWAY")), tonumber(os.getenv("GATEWAYS"))
local now = ffi.new("instant")

function init()
  wrk.headers["x-key"] = "hot"
end

function delay()
  ffi.C.gettimeofday(now, nil)
  local turns = (gateway - tonumber(now.seconds)) % gateways
  if turns == 0 then
    return pause
  end
  return turns * 1000 - tonumber(now.micros) / 1000 + math.random(0, pause)
end

function done(summary)
  local e = summary.errors
  io.write(string.format('\nSUMMARY {"requests":%d,"refused_or_failed":%d}\n', summary.requests, e.status))
end
