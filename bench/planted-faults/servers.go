// Go servers: a healthy one, one that makes garbage (to be run with a small GOGC), two with a limit of their own.
package main

import (
	"bytes"
	"log"
	"net/http"
	"os"
	"sync"
	"time"
)

// 1 KiB for any GET.
func healthy() http.HandlerFunc {
	body := bytes.Repeat([]byte("x"), 1024)
	return func(response http.ResponseWriter, request *http.Request) { response.Write(body) }
}

// Garbage for each request, some of which is kept.
func garbage() http.HandlerFunc {
	var kept [4096][]byte
	for i := range kept {
		kept[i] = make([]byte, 4096)
	}
	var next uint32
	return func(response http.ResponseWriter, request *http.Request) {
		for i := 0; i < 64; i++ {
			next++
			kept[next%4096] = make([]byte, 4096)
		}
		response.Write(kept[0][:128])
	}
}

// Four requests at a time, by a channel, are asleep for 5 ms.
func channel() http.HandlerFunc {
	four := make(chan struct{}, 4)
	body := make([]byte, 128)
	return func(response http.ResponseWriter, request *http.Request) {
		four <- struct{}{}
		time.Sleep(5 * time.Millisecond)
		<-four
		response.Write(body)
	}
}

// One request at a time is asleep for 1 ms with a lock held.
func mutex() http.HandlerFunc {
	var lock sync.Mutex
	body := make([]byte, 128)
	return func(response http.ResponseWriter, request *http.Request) {
		lock.Lock()
		time.Sleep(time.Millisecond)
		lock.Unlock()
		response.Write(body)
	}
}

func main() {
	handlers := map[string]func() http.HandlerFunc{
		"healthy": healthy, "garbage": garbage, "channel": channel, "mutex": mutex,
	}
	log.Fatal(http.ListenAndServe("0.0.0.0:"+os.Args[2], handlers[os.Args[1]]()))
}
