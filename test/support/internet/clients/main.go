// Prints the answers to GET requests: client <url>...
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: 20 * time.Second}
	for _, url := range os.Args[1:] {
		request, err := http.NewRequest("GET", url, nil)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		if key := os.Getenv("API_KEY"); key != "" {
			request.Header.Set("authorization", "Bearer "+key)
		}
		response, err := client.Do(request)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		body, _ := io.ReadAll(response.Body)
		fmt.Println(response.Proto, response.StatusCode, string(body))
	}
}
