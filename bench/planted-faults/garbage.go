// A Go server that makes garbage for each request and keeps some of it, to be run with a small GOGC.
package main

import (
	"log"
	"net/http"
	"os"
)

var kept [4096][]byte

func main() {
	body := make([]byte, 128)
	for i := range kept {
		kept[i] = make([]byte, 4096)
	}
	var next uint32
	handler := func(response http.ResponseWriter, request *http.Request) {
		for i := 0; i < 64; i++ {
			next++
			kept[next%4096] = make([]byte, 4096)
		}
		response.Write(body)
	}
	log.Fatal(http.ListenAndServe("0.0.0.0:"+os.Args[1], http.HandlerFunc(handler)))
}
