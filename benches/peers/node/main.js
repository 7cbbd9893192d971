// Lock + unlock with redis-semaphore, as its own documentation does it: a key for each chain of promises, a lease of 30 s.
//
// Arguments: the port of a Redis server, and the number of chains. For each line with a number of milliseconds it works for so long, and prints
// how many pairs it did in a second.
const readline = require('node:readline')
const { performance } = require('node:perf_hooks')
const Redis = require('ioredis')
const { Mutex } = require('redis-semaphore')

const [port, chains] = process.argv.slice(2).map(Number)
const client = new Redis({ host: '127.0.0.1', port })

async function chain(n, end) {
  const mutex = new Mutex(client, `redis-semaphore-${n}`, { lockTimeout: 30000 })
  let pairs = 0
  while (performance.now() < end) {
    await mutex.acquire()
    await mutex.release()
    pairs += 1
  }
  return pairs
}

async function work(window) {
  const begin = performance.now()
  const pairs = await Promise.all(Array.from({ length: chains }, (_, n) => chain(n, begin + window)))
  return (pairs.reduce((sum, more) => sum + more, 0) * 1000) / (performance.now() - begin)
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await work(Number(line)))
  }
  client.disconnect()
}

main()
