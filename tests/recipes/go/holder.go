// Holds the lock of the manual's recipe until its input ends.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/consul/api"
)

func main() {
	client, err := api.NewClient(&api.Config{Address: os.Args[1]})
	check(err)
	lock, err := client.LockKey("dlock/DLOCK_EXPORT_nightly/.lock")
	check(err)
	_, err = lock.Lock(nil)
	check(err)
	fmt.Println("held")
	_, err = io.ReadAll(os.Stdin)
	check(err)
	check(lock.Unlock())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
