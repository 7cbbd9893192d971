-- Chunk: makes the number of waiters out of the length of the queue, at whose head a marker may stand (see hand_over.lua).
--
-- KEYS[2] the queue, beside which no gap stands: a tenure holds the key; local of the including script: `waiting`. If a
-- command is refused, the number is 1 too high.

if waiting > 0 then
  local head = redis.pcall('LINDEX', KEYS[2], 0)
  if type(head) == 'string' and string.find(head, '^keep %d+$') then
    waiting = waiting - 1
  end
end
