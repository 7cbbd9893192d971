-- Chunk: makes the number of waiters out of the length of the queue. The marker at the queue's head is no waiter (see
-- hand_over.lua).
--
-- KEYS[2]  the queue. No gap stands there, because a tenure holds the key
-- local    of the including script:
--          waiting   the length of the queue; set to the number of waiters. It is one too high if LINDEX is refused

if waiting > 0 then
  local head = redis.pcall('LINDEX', KEYS[2], 0)
  if type(head) == 'string' and string.find(head, '^keep %d+ %d+$') then
    waiting = waiting - 1
  end
end
