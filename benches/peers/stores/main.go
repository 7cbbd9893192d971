// The locks of Go's packages on a consensus store, as their own documentation uses them: concurrency.Mutex of etcd's client, with one session
// for all locks of a process, and api.Lock of Consul's, which makes a session for each.
//
// Arguments: the store, the address of a server, the name of a lock, and the number of this process. For each line "pairs N" it locks and unlocks
// so often, and prints how many microseconds each took. For each line "turns T" it locks, holds for 2 ms and unlocks until the monotonic clock
// shows T, and prints of each hold its beginning, the number of the process, and its beginning and end: as the bench's own processes do.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"
)

const hold = 2 * time.Millisecond

type locker interface {
	lock()
	unlock()
}

type etcdMutex struct{ *concurrency.Mutex }

func (m etcdMutex) lock()   { check(m.Lock(context.Background())) }
func (m etcdMutex) unlock() { check(m.Unlock(context.Background())) }

type consulLock struct{ *api.Lock }

func (l consulLock) lock() {
	_, err := l.Lock.Lock(nil)
	check(err)
}
func (l consulLock) unlock() { check(l.Unlock()) }

func open(store, address, name string) locker {
	if store == "etcd" {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
		check(err)
		session, err := concurrency.NewSession(client)
		check(err)
		return etcdMutex{concurrency.NewMutex(session, "go/"+name)}
	}
	client, err := api.NewClient(&api.Config{Address: address})
	check(err)
	lock, err := client.LockKey("go/" + name)
	check(err)
	return consulLock{lock}
}

func main() {
	lock, me := open(strings.ToLower(os.Args[1]), os.Args[2], os.Args[3]), os.Args[4]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var what string
		var number uint64
		_, err := fmt.Sscan(lines.Text(), &what, &number)
		check(err)
		if what == "pairs" {
			begin := now()
			for range number {
				lock.lock()
				lock.unlock()
			}
			fmt.Println(float64(now()-begin) / 1000 / float64(number))
			continue
		}
		var holds []string
		for now() < number {
			lock.lock()
			begin := now()
			time.Sleep(hold)
			end := now()
			lock.unlock()
			holds = append(holds, fmt.Sprint(begin, " ", me, " ", begin, " ", end))
		}
		fmt.Println(strings.Join(holds, " "))
	}
}

// Nanoseconds of the clock that all processes of a machine share.
func now() uint64 {
	var time unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return uint64(time.Nano())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
