-- Chunk: puts an entry at the queue's end, and lets the queue live long enough for it.
--
-- KEYS[2]  the queue
-- locals   of the including script:
--          behind    the entry
--          life      how long the queue must live, in ms
--          refused   nil; or set to the error to answer, and the queue is as it was
--
-- If PEXPIRE is refused and the entry cannot be taken out again, it stays, and `refused` stays nil.

local length = redis.pcall('RPUSH', KEYS[2], behind)
if length ~= 1 and type(length) == 'table' then
  refused = length
else
  local set
  if length == 1 then
    set = redis.pcall('PEXPIRE', KEYS[2], life)
  else
    set = redis.pcall('PEXPIRE', KEYS[2], life, 'GT')
  end
  if set ~= 1 and set ~= 0 and redis.pcall('LREM', KEYS[2], -1, behind) == 1 then
    refused = set
  end
end
