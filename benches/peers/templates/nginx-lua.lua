-- The limit of nginx: the address's bucket, decided by one EVALSHA on a kept connection.
--
-- It speaks to Redis by hand. A client library does the same with more work in between;
-- here the command is put together once, all but the address, and the reply is one line.

local function bulk(text)
  return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

local function hex(bytes)
  return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

return function(options)
  local file = assert(io.open(options.script))
  local script = file:read("*a")
  file:close()
  local by_hash = "*6\r\n" .. bulk("EVALSHA") .. bulk(hex(ngx.sha1_bin(script))) .. bulk("1")
  local by_text = "*6\r\n" .. bulk("EVAL") .. bulk(script) .. bulk("1")
  local arguments = bulk(tostring(options.count)) .. bulk(tostring(options.period))
  local port, tcp, var, exit = options.port, ngx.socket.tcp, ngx.var, ngx.exit

  local function fail(why)
    ngx.log(ngx.CRIT, "redis: ", why)
    return exit(500)
  end

  return function()
    local redis = tcp()
    redis:settimeouts(1000, 1000, 1000)
    local done, why = redis:connect("127.0.0.1", port)
    if not done then return fail(why) end
    local key = bulk("rate:" .. var.remote_addr)
    done, why = redis:send(by_hash .. key .. arguments)
    if not done then return fail(why) end
    local reply
    reply, why = redis:receive()
    if reply and reply:find("-NOSCRIPT", 1, true) == 1 then
      redis:send(by_text .. key .. arguments)
      reply, why = redis:receive()
    end
    if not reply then return fail(why) end
    redis:setkeepalive(300000, 64)
    if reply == ":1" then return end
    if reply == ":0" then return exit(429) end
    return fail(reply)
  end
end
