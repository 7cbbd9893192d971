-- Chunk: the reply of a script whose key is not the locker's. It ends the script.
--
-- local    of the including script:
--          holder   what GET of the key has returned: the holder, false for a key that is free, or an error

if type(holder) == 'table' then
  if string.find(holder.err, '^WRONGTYPE') then
    return {0, '(a value of another type)'}
  end
  return holder
end
return {0, holder}
