// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bufio"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long to wait for what will happen.
const Patience = 2 * time.Minute

var listening = regexp.MustCompile(`"?Listening on"?.*address=(127\.0\.0\.1:\d+)`)

// A Program is a real one, at the address that it listens on.
type Program struct {
	Address string

	mutex sync.Mutex
	log   strings.Builder
}

// Run starts a program, which ends with the test, and waits until it says, on
// standard error, what it listens on.
func Run(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Program{}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(p.Logged())
		}
	})
	address := make(chan string, 1)
	go func() {
		defer close(address)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mutex.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mutex.Unlock()
			if match := listening.FindStringSubmatch(lines.Text()); match != nil {
				address <- match[1]
			}
		}
	}()
	select {
	case p.Address = <-address:
	case <-time.After(Patience):
	}
	if p.Address == "" {
		t.Fatalf("%s does not listen", cmd.Path)
	}
	return p
}

// Logged returns what the program has said so far.
func (p *Program) Logged() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.log.String()
}
