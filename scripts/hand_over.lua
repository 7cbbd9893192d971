-- Chunk: gives the key to the first live tenure of the queue. The includer knows that the key may be given away and
-- that the queue is a list; it sends the message `granted` itself, as the last thing it does (a denied PUBLISH must
-- lose nobody).
--
-- A gap stands at the queue's head as `gap {its end, in ms of the server's clock} {its length in ms}`: until then the key
-- is free for whoever knows no queue. One that is longer than its length is of a clock that was stepped back, and over.
-- All who keep a key in a queue's presence come through here, so while a tenure holds the key, no gap stands.
--
-- KEYS as in acquire; locals of the including script: `slack`, and `caller`, the asker's own entry, which is live
-- without an inbox (or false). Leaves `failed` (the error to answer), else `winner` (its locker, or false when nobody
-- lives; the queue is empty then), `lease`, `inbox` and the fence number `number`, issued before anything else is
-- written. In a gap nothing is written: `winner` is a text in the place of a locker, `lease` what is left, `inbox` nil.

local number, failed, lease, inbox
local winner = false
local entry = redis.call('LINDEX', KEYS[2], 0)
if entry and string.byte(entry) == 103 then -- a g
  local ends, length = string.match(entry, '^gap (%d+) (%d+)$')
  local time = redis.pcall('TIME')
  if time.err then
    failed = time
  elseif ends and #length < 16 then
    lease = ends - time[1] * 1000 - math.floor(time[2] / 1000)
    if lease > 0 and lease <= tonumber(length) then
      winner = '(free for pollers)'
    end
  end
end
if not failed and not winner then
  -- #include issue
end
if not failed and not winner then
  while entry do
    local ms, locker, client = string.match(entry, '^([1-9]%d*) (([^ ]*)%-[^- ]*)$')
    if ms and #ms < 16 then -- anything else no lock wrote, and SET might refuse it; or it is a gap that is over
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
