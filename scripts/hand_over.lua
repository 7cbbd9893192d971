-- Chunk: gives the key to the first tenure of the queue that is heard. The including script has found that the key may be
-- given away and that the queue is a list. It sends the message `granted` itself, as its last call, because a denied PUBLISH
-- must lose nobody.
--
-- A gap is the entry `gap {its end, in ms of the server's clock} {its length in ms}` at the queue's head. Until its end the key
-- stays free for pollers. A gap is over, too, if more than its length is left: the clock was stepped back. Only this chunk gives
-- away a key that has a queue, so no gap stands while a tenure holds the key.
--
-- A tenure is unheard if its inbox has no subscriber. It is passed over and keeps its place for a second, because a failover
-- closes all inboxes for a moment. The marker `keep {end of the second, in ms of the server's clock} {how many were passed over}`
-- tells this. A hand-over pushes it to the queue's head; a later gap stands before it. The marker is over at its end, or if more
-- than a second is left (the clock was stepped back). Then a hand-over drops so many unheard tenures and the marker. If it passes
-- over more, a new marker begins their second. A hand-over that passes over nobody removes the marker. So does poll.lua when the
-- first tenure is heard again.
--
-- The winner leaves the queue before the key is set, so a locker that holds never stands in the queue. If the SET is refused, the
-- winner returns to the head, before those that were passed over. The newcomer enters the queue before the last entry can leave
-- it, so no key is used after it may have gone. An entry of the locker that is being released is dropped; scripts of version 0.1.0
-- can have left one.
--
-- KEYS    as in acquire
-- locals  of the including script:
--         slack     as in issue
--         waiting   the length of the queue
--         caller    the asker's own entry, which counts as heard, or false
--         ended     the locker that is being released, or false
--         behind    the entry that goes to the queue's end if somebody else gets the key, or false; with life and refused as
--                   in enqueue
-- leaves  failed    the error to answer. The key is as it was. Unheard tenures may have left the queue
--         winner    its locker, or false if nobody is heard; with lease, inbox and the fence number `number`, which is issued
--                   before anything else is written
--         waiting   how many wait now
--         In a gap nothing is written: winner is a text and no locker, lease is what is left, inbox is nil, waiting is as it was.
-- raises  an error only if the winner could not return to the queue, or the newcomer could not leave it

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
  local looked, unheard, first, covered = 0, 0, 0, 0
  local ms, marker, ends, others
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
          unheard = unheard + 1
          if unheard <= first then
            covered = looked
          end
        end
      end
      if winner then
        ms, lease = length, tonumber(length)
        break
      end
    else
      local found, count
      if not marker then
        found, count = string.match(entry, '^keep (%d+) (%d+)$')
      end
      if found then
        marker, ends, first, covered = entry, found, tonumber(count), looked
      else -- anything else no lock wrote, and SET might refuse it; or it is a gap that is over
        others = others or {}
        others[#others + 1] = entry
      end
    end
    entry = redis.call('LINDEX', KEYS[2], looked)
  end

  if not failed then
    local keeps, stands = unheard > 0, false
    if keeps then
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local over = marker and (ends - now <= 0 or ends - now > 1000)
      keeps = not over or unheard > first
      if keeps and over then
        local popped = redis.pcall('LPOP', KEYS[2], covered)
        if popped.err then
          failed = popped
        end
        unheard = unheard - first
      end
      if keeps and not failed and (over or not marker) then
        marker = string.format('keep %.0f %d', now + 1000, unheard)
        local length = redis.pcall('LPUSH', KEYS[2], marker)
        if type(length) == 'table' then
          failed = length
        else
          waiting = length
        end
      end
    end
    if keeps then
      local leaving = others or {}
      if winner then
        leaving[#leaving + 1] = entry
      end
      waiting = waiting - 1
      for n = 1, #leaving do -- whoever is unheard stays, so the queue does, too
        local removed = not failed and redis.pcall('LREM', KEYS[2], 1, leaving[n])
        if type(removed) == 'table' then
          failed = removed
        elseif removed then
          waiting = waiting - removed
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
