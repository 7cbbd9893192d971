-- Chunk: gives the key to the first live tenure of the queue. The includer knows that the key may be given away and
-- that the queue is a list; it sends the message `granted` itself, as the last thing it does (a denied PUBLISH must
-- lose nobody).
--
-- A gap stands at the queue's head as `gap {its end, in ms of the server's clock} {its length in ms}`: until then the key
-- is free for whoever knows no queue. One that is longer than its length is of a clock that was stepped back, and over.
-- All who keep a key in a queue's presence come through here, so while a tenure holds the key, no gap stands.
--
-- The entry leaves the queue before the key is set: a locker that holds never stands in the queue. If the SET is refused, the
-- entry returns to the head. An entry of the locker that is being released is dropped, whoever left it there.
--
-- KEYS as in acquire; locals of the including script: `slack`; `caller`, the asker's own entry, which is live without
-- an inbox (or false); `ended`, the locker that is being released (or false). Leaves `failed` (the error to answer; the key is as
-- it was, and only dead entries have left the queue), else `winner` (its locker, or false when nobody lives; the queue is
-- empty then), `lease`, `inbox` and the fence number `number`, issued before anything else is written. In a gap nothing is
-- written: `winner` is a text in the place of a locker, `lease` what is left, `inbox` nil. Raises an error only if a
-- live entry could not return to the queue.

local number, failed, lease, inbox
local winner = false
local entry = redis.pcall('LINDEX', KEYS[2], 0)
if entry and entry.err then -- a text has no such field
  failed = entry
elseif entry and string.byte(entry) == 103 then -- a g
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
    if ms and #ms < 16 and locker ~= ended then -- anything else no lock wrote, and SET might refuse it; or it is a gap that is over
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
    local popped = redis.pcall('LPOP', KEYS[2])
    if popped.err then
      failed = popped
      break
    end
    if winner then
      lease = tonumber(ms)
      local set = redis.pcall('SET', KEYS[1], winner, 'PX', ms)
      if set.err then
        failed = set
        if redis.call('LPUSH', KEYS[2], entry) == 1 then
          redis.call('PEXPIRE', KEYS[2], 2 * ms)
        end
      end
      break
    end
    entry = redis.call('LINDEX', KEYS[2], 0)
  end
end
