-- Chunk: gives the key to the first live tenure of the queue. The includer knows that the key may be given away and
-- that the queue is a list; it sends the message `granted` itself, as the last thing it does (a denied PUBLISH must
-- lose nobody).
--
-- KEYS as in acquire; locals of the including script: `slack`, and `caller`, the asker's own entry, which is live
-- without an inbox (or false). Leaves `failed` (the error to answer), else `winner` (its locker, or false when nobody
-- lives; the queue is empty then), `lease`, `inbox` and the fence number `number`, issued before anything else is
-- written.

-- #include issue
local winner, lease, inbox = false
if not failed then
  local entry = redis.call('LINDEX', KEYS[2], 0)
  while entry do
    local ms, locker, client = string.match(entry, '^([1-9]%d*) (([^ ]*)%-[^- ]*)$')
    if ms and #ms < 16 then -- anything else no lock wrote, and SET might refuse it
      inbox = 'DLOCK:1:inbox:' .. client
      if entry == caller then
        winner = locker
      else
        local heard = redis.pcall('PUBSUB', 'NUMSUB', inbox)
        if heard.err then
          failed = heard
          break
        end
        if heard[2] > 0 then
          winner = locker
        end
      end
    end
    if winner then
      lease = tonumber(ms)
      redis.call('SET', KEYS[1], winner, 'PX', ms)
      redis.call('LPOP', KEYS[2])
      break
    end
    redis.call('LPOP', KEYS[2])
    entry = redis.call('LINDEX', KEYS[2], 0)
  end
end
