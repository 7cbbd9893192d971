-- Chunk: looks at who holds a key, for how long, and how many wait. If a call is refused, or a key is of another type, the script
-- answers that here.
--
-- KEYS    1 lock key, 2 queue
-- leaves  holder      the locker, or false
--         remaining   as PTTL
--         waiting     how many wait: neither a gap nor a marker is a waiter, see hand_over.lua

local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
  if string.find(holder.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT lock key: the value is of another type')
  end
  return holder
end
local waiting = redis.pcall('LLEN', KEYS[2])
if type(waiting) == 'table' then
  if string.find(waiting.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return waiting
end
if waiting > 0 then
  local head = redis.pcall('LINDEX', KEYS[2], 0)
  if type(head) == 'table' then
    return head
  end
  if string.find(head, '^gap %d+ %d+$') then -- no waiter, see hand_over.lua
    waiting = waiting - 1
    head = redis.call('LINDEX', KEYS[2], 1)
  end
  if head and string.find(head, '^keep %d+ %d+$') then -- nor is this
    waiting = waiting - 1
  end
end
local remaining = redis.pcall('PTTL', KEYS[1])
if type(remaining) == 'table' then
  return remaining
end
