// Lock + unlock with redislock, as its own documentation does it: a key for each goroutine, a lease of 30 s.
//
// Arguments: the port of a Redis server, and the number of goroutines. For each line with a number of milliseconds it works for so long, and
// prints how many pairs it did in a second.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	goroutines, err := strconv.Atoi(os.Args[2])
	check(err)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	locker := redislock.New(client)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		window, err := strconv.Atoi(lines.Text())
		check(err)
		fmt.Println(work(locker, goroutines, time.Duration(window)*time.Millisecond))
	}
}

func work(locker *redislock.Client, goroutines int, window time.Duration) float64 {
	var pairs atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for n := range goroutines {
		all.Go(func() {
			ctx, key := context.Background(), fmt.Sprintf("redislock-%d", n)
			for time.Since(begin) < window {
				lock, err := locker.Obtain(ctx, key, 30*time.Second, nil)
				check(err)
				check(lock.Release(ctx))
				pairs.Add(1)
			}
		})
	}
	all.Wait()
	return float64(pairs.Load()) / time.Since(begin).Seconds()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
