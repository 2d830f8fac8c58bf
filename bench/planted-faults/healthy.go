// A healthy Go server: 1 KiB for any GET.
package main

import (
	"bytes"
	"log"
	"net/http"
	"os"
)

func main() {
	body := bytes.Repeat([]byte("x"), 1024)
	handler := func(response http.ResponseWriter, request *http.Request) { response.Write(body) }
	log.Fatal(http.ListenAndServe("0.0.0.0:"+os.Args[1], http.HandlerFunc(handler)))
}
