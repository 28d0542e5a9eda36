// SPDX-License-Identifier: Apache-2.0

// Package unixctl talks to the control socket of an Open vSwitch daemon, as
// ovs-appctl does, without starting a program.
//
// Whoever may connect to that socket may run any command, "exit" included.
package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MaxReply is how many bytes of one reply are read.  A daemon's reply in JSON
// to a cost command has room for 2 MB of accounts.
const MaxReply = 8 << 20

// CommandError is what a daemon replies to a command that failed.
type CommandError struct {
	Command string
	Text    string
}

func (e *CommandError) Error() string {
	return e.Command + ": " + strings.TrimSpace(e.Text)
}

// Conn is a connection to a daemon.  It is for one goroutine at a time, and
// of no use any more after a call has failed with anything but a
// *CommandError.
type Conn struct {
	conn  net.Conn
	limit io.LimitedReader
	dec   *json.Decoder
	id    uint64
}

// Socket returns the control socket of the daemon that 'target' names, as
// ovs-appctl -t does: an absolute name is that of a socket, another one that
// of a daemon whose pidfile is in 'dir'.
func Socket(dir, target string) (string, error) {
	if filepath.IsAbs(target) {
		return target, nil
	}
	pidfile := filepath.Join(dir, target+".pid")
	text, err := os.ReadFile(pidfile)
	if err != nil {
		return "", explain(pidfile, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return "", fmt.Errorf("%s: no process ID in it", pidfile)
	}
	return filepath.Join(dir, fmt.Sprintf("%s.%d.ctl", target, pid)), nil
}

// Dial connects to the control socket 'path', and has the daemon reply in
// JSON.  'ctx' limits how long this, and all calls on the connection, may
// take.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, explain(path, err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			conn.Close()
			return nil, err
		}
	}
	c := &Conn{conn: conn}
	c.limit.R = conn
	c.dec = json.NewDecoder(&c.limit)
	// This has to be the first request on a connection.
	if _, err := c.Call("set-options", "--format", "json"); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error {
	return c.conn.Close()
}

// Call runs a command and returns its reply.
func (c *Conn) Call(method string, params ...string) ([]byte, error) {
	if params == nil {
		params = []string{}
	}
	id := c.id
	c.id++
	request, err := json.Marshal(map[string]any{
		"method": method, "params": params, "id": id})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if _, err := c.conn.Write(request); err != nil {
		return nil, c.failure(method, start, err)
	}
	var reply struct {
		ID     *uint64         `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	c.limit.N = MaxReply
	if err := c.dec.Decode(&reply); err != nil {
		return nil, c.failure(method, start, err)
	}
	if reply.ID == nil || *reply.ID != id {
		return nil, fmt.Errorf("%s: a reply to another request", method)
	}
	if len(reply.Error) > 0 && string(reply.Error) != "null" {
		var text string
		if json.Unmarshal(reply.Error, &text) != nil {
			text = string(reply.Error)
		}
		return nil, &CommandError{method, text}
	}
	return reply.Result, nil
}

// failure says why there is no reply to 'method'.
func (c *Conn) failure(method string, start time.Time, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no complete reply within %v: %w", method,
			time.Since(start).Round(time.Millisecond), err)
	case c.limit.N <= 0:
		return fmt.Errorf("%s: the reply is longer than %d bytes", method,
			MaxReply)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: the daemon closed the connection: %w", method,
			err)
	}
	return fmt.Errorf("%s: %w", method, err)
}

// explain adds to 'err', of using 'path', who may do that if this process may
// not.
func explain(path string, err error) error {
	if !errors.Is(err, syscall.EACCES) {
		return err
	}
	for at := path; ; at = filepath.Dir(at) {
		info, statErr := os.Stat(at)
		if statErr != nil {
			if at == filepath.Dir(at) {
				return err
			}
			continue // It is in a directory that may not be searched.
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return err
		}
		return fmt.Errorf("%w: %s belongs to user %s and group %s (mode "+
			"%04o), this program runs as user %s and group %s", err, at,
			userName(stat.Uid), groupName(stat.Gid), info.Mode().Perm(),
			userName(uint32(os.Geteuid())), groupName(uint32(os.Getegid())))
	}
}

func userName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	if u, err := user.LookupId(text); err == nil {
		return u.Username
	}
	return text
}

func groupName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	if g, err := user.LookupGroupId(text); err == nil {
		return g.Name
	}
	return text
}
