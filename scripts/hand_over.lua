-- Chunk: gives the key to the first tenure of the queue that is heard. The includer knows that the key may be given away and
-- that the queue is a list; it sends the message `granted` itself, as the last thing it does (a denied PUBLISH must
-- lose nobody).
--
-- A gap stands at the queue's head as `gap {its end, in ms of the server's clock} {its length in ms}`: until then the key
-- is free for whoever knows no queue. One that is longer than its length is of a clock that was stepped back, and over.
-- All who keep a key in a queue's presence come through here, so while a tenure holds the key, no gap stands.
--
-- A tenure whose inbox nobody hears is passed over, and keeps its place for a second: at a failover all inboxes are closed for
-- a moment. The first hand-over that passes over one puts `keep {when the second ends, in ms of the server's clock}` at the
-- queue's head (a later gap stands before it). When that is over, or ends later than in a second because the clock was stepped
-- back, unheard tenures are dropped, and the marker with them. It goes, too, when this finds nobody unheard.
--
-- The entry leaves the queue before the key is set: a locker that holds never stands in the queue. If the SET is refused, the
-- entry returns to the head, before those that were passed over. The newcomer enters the queue before the last entry can leave
-- it, so that no key is used after it may have gone. An entry of the locker that is being released is dropped, whoever left it
-- there.
--
-- KEYS as in acquire; locals of the including script: `slack`; `waiting`, the length of the queue; `caller`, the asker's own
-- entry, which is live without an inbox (or false); `ended`, the locker that is being released (or false); `behind`, the entry
-- to put at the queue's end if somebody else gets the key (or false), and for it `life` and `refused`, as in enqueue. Leaves
-- `failed` (the error to answer; the key is as it was, and only unheard entries have left the queue), else `winner` (its locker,
-- or false when nobody is heard), `lease`, `inbox`, the fence number `number`, issued before anything else is written, and in
-- `waiting` how many wait now. In a gap nothing is written: `winner` is a text in the place of a locker, `lease` what is left,
-- `inbox` nil, `waiting` as it was. Raises an error only if a live entry could not return to the queue, or the newcomer could
-- not leave it.

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
  local looked, unheard, ms, marker, ends, others = 0, false
  while entry and not failed do
    local length, locker, client = string.match(entry, '^([1-9]%d*) (([^ ]*)%-[^- ]*)$')
    looked = looked + 1
    if length and #length < 16 and locker ~= ended then
      inbox = 'DLOCK:1:inbox:' .. client
      if entry == caller then
        winner = locker
      else
        local heard = redis.pcall('PUBSUB', 'NUMSUB', inbox)
        if heard.err then
          failed = heard
        elseif heard[2] > 0 then
          winner = locker
        else
          unheard = true
        end
      end
      if winner then
        ms, lease = length, tonumber(length)
        break
      end
    else
      local found = not marker and string.match(entry, '^keep (%d+)$')
      if found then
        marker, ends = entry, found
      else -- anything else no lock wrote, and SET might refuse it; or it is a gap that is over
        others = others or {}
        others[#others + 1] = entry
      end
    end
    entry = redis.call('LINDEX', KEYS[2], looked)
  end

  if not failed then
    local keeps, stands = unheard, false
    if unheard then
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      if marker then
        keeps = ends - now > 0 and ends - now <= 1000
      else
        marker = string.format('keep %.0f', now + 1000)
        local pushed = redis.pcall('LPUSH', KEYS[2], marker)
        if type(pushed) == 'table' then
          failed = pushed
        end
        waiting = waiting + 1
      end
    end
    if keeps then
      local leaving = others or {}
      if winner then
        leaving[#leaving + 1] = entry
      end
      waiting = waiting - 1 - #leaving
      for n = 1, #leaving do -- whoever is unheard stays, so the queue does, too
        local removed = not failed and redis.pcall('LREM', KEYS[2], 1, leaving[n])
        if type(removed) == 'table' then
          failed = removed
        end
      end
    else
      waiting = waiting - looked
    end
    if winner and behind and not failed then
      -- #include enqueue
      if not refused then
        stands, waiting = true, waiting + 1
      end
    end
    if not keeps then
      local popped
      if looked == 1 then -- a text costs less than a table
        popped = redis.pcall('LPOP', KEYS[2])
      else
        popped = redis.pcall('LPOP', KEYS[2], looked)
      end
      if popped.err then
        failed = popped
      end
    end
    if winner and not failed then
      local set = redis.pcall('SET', KEYS[1], winner, 'PX', ms)
      if set.err then
        failed = set
        if keeps then -- the marker stays at the head
          redis.call('LPUSH', KEYS[2], entry, marker)
          redis.pcall('LREM', KEYS[2], -1, marker)
        elseif redis.call('LPUSH', KEYS[2], entry) == 1 then
          redis.call('PEXPIRE', KEYS[2], 2 * ms)
        end
      end
    end
    if failed and stands then
      redis.call('LREM', KEYS[2], -1, behind)
    end
  end
end
