// SPDX-License-Identifier: Apache-2.0

// Package fake has a control socket of a daemon that only pretends.
package fake

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// A Handler answers a command, with JSON or with an error.
type Handler func(method string, params []string) (result string, errText string)

// Daemon listens on a control socket.
type Daemon struct {
	Path string
	// Cut is how many bytes of each reply but the first one of a connection
	// are sent, 0 for all.  If it is longer, the connection is closed after
	// that, unless Hang is true.  Both are to be set before somebody connects.
	Cut  int
	Hang bool
	// ID is added to each reply's identifier.
	ID uint64

	listener net.Listener
	handler  Handler

	mutex       sync.Mutex
	commands    [][]string
	connections []net.Conn
}

// Start starts a daemon that answers on 'path' until the test ends.
func Start(t testing.TB, path string, handler Handler) *Daemon {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Path: path, listener: listener, handler: handler}
	go d.run()
	t.Cleanup(d.Stop)
	return d
}

// Stop closes the socket and all connections.
func (d *Daemon) Stop() {
	d.listener.Close()
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, conn := range d.connections {
		conn.Close()
	}
}

// Commands returns the commands so far.
func (d *Daemon) Commands() [][]string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return append([][]string(nil), d.commands...)
}

func (d *Daemon) run() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mutex.Lock()
		d.connections = append(d.connections, conn)
		d.mutex.Unlock()
		go d.serve(conn)
	}
}

// commands are those whose replies are in that to cost/show.
var commands = map[string]string{
	"upcall/cost-show": "upcall", "tx/cost-show": "tx",
	"bridge/cost-show": "bridge", "netlink/cost-show": "netlink",
	"revalidator/cost-show":  "revalidator",
	"revalidator/cost-limit": "cost-limit",
	"cost/threads":           "threads",
}

func (d *Daemon) answer(method string, params []string) (string, string) {
	if method != "cost/show" {
		return d.handler(method, params)
	}
	var replies []string
	for command := range commands {
		if reply, errText := d.handler(command, params); errText == "" {
			replies = append(replies, reply)
		}
	}
	return `{"version": 2, "replies": [` + strings.Join(replies, ",") + "]}", ""
}

func (d *Daemon) serve(conn net.Conn) {
	decoder := json.NewDecoder(conn)
	for first := true; ; first = false {
		var request struct {
			Method string   `json:"method"`
			Params []string `json:"params"`
			ID     uint64   `json:"id"`
		}
		if decoder.Decode(&request) != nil {
			conn.Close()
			return
		}
		d.mutex.Lock()
		d.commands = append(d.commands, append([]string{request.Method}, request.Params...))
		d.mutex.Unlock()
		result, errText := `""`, ""
		if request.Method != "set-options" {
			result, errText = d.answer(request.Method, request.Params)
		}
		reply := map[string]any{"id": request.ID + d.ID, "error": nil,
			"result": json.RawMessage(result)}
		if errText != "" {
			reply["error"], reply["result"] = errText, nil
		}
		text, err := json.Marshal(reply)
		if err != nil {
			text = []byte(result) // Not JSON, as the handler wants it.
		}
		if d.Cut > 0 && d.Cut < len(text) && !first {
			conn.Write(text[:d.Cut])
			if !d.Hang {
				conn.Close()
				return
			}
			continue
		}
		if _, err := conn.Write(text); err != nil {
			return
		}
	}
}

// Replies returns a Handler that has for each command the reply that is in
// 'dir', in a file with the name of the report, and refuses other commands.
func Replies(t testing.TB, dir string) Handler {
	t.Helper()
	replies := map[string]string{}
	for command, file := range commands {
		text, err := os.ReadFile(dir + "/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		replies[command] = string(text)
	}
	return func(method string, params []string) (string, string) {
		if reply, ok := replies[method]; ok {
			return reply, ""
		}
		return "", `"` + method + `" is not a valid command`
	}
}
