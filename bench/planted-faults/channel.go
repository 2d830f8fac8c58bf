// A Go server in which four requests at a time, by a channel, are asleep for 5 ms.
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	body := make([]byte, 128)
	four := make(chan struct{}, 4)
	handler := func(response http.ResponseWriter, request *http.Request) {
		four <- struct{}{}
		time.Sleep(5 * time.Millisecond)
		<-four
		response.Write(body)
	}
	log.Fatal(http.ListenAndServe("0.0.0.0:"+os.Args[1], http.HandlerFunc(handler)))
}
