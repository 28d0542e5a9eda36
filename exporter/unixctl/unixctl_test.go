// SPDX-License-Identifier: Apache-2.0

package unixctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovs-cost/exporter/internal/fake"
)

func echo(method string, params []string) (string, string) {
	switch method {
	case "echo":
		return `{"said": "` + strings.Join(params, " ") + `"}`, ""
	case "long":
		return `"` + strings.Repeat("x", MaxReply) + `"`, ""
	case "garbage":
		return "]", ""
	}
	return "", "no " + method + " here\n"
}

func dial(t *testing.T, d *fake.Daemon) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	conn, err := Dial(ctx, d.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func socket(t *testing.T) string {
	return filepath.Join(t.TempDir(), "ctl")
}

func TestCall(t *testing.T) {
	d := fake.Start(t, socket(t), echo)
	conn := dial(t, d)
	for i := 0; i < 3; i++ {
		reply, err := conn.Call("echo", "a", "b")
		if err != nil || string(reply) != `{"said":"a b"}` {
			t.Fatalf("%s, %v", reply, err)
		}
	}
	_, err := conn.Call("dance")
	var refusal *CommandError
	if !errors.As(err, &refusal) || err.Error() != "dance: no dance here" {
		t.Errorf("%v", err)
	}
	// A refusal does no harm.
	if _, err = conn.Call("echo"); err != nil {
		t.Error(err)
	}
	want := []string{"set-options", "--format", "json"}
	if got := d.Commands()[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	var refusal *CommandError
	if err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, not %q", err, text)
	}
}

func TestBadReplies(t *testing.T) {
	conn := dial(t, fake.Start(t, socket(t), echo))
	_, err := conn.Call("long")
	wantError(t, err, "long: the reply is longer than 8388608 bytes")

	conn = dial(t, fake.Start(t, socket(t), echo))
	_, err = conn.Call("garbage")
	wantError(t, err, "garbage: invalid character ']'")

	d := fake.Start(t, socket(t), echo)
	d.Cut = 10
	_, err = dial(t, d).Call("echo")
	wantError(t, err, "echo: the daemon closed the connection")

	d = fake.Start(t, socket(t), echo)
	d.ID = 1
	_, err = Dial(context.Background(), d.Path)
	wantError(t, err, "set-options: a reply to another request")
}

func TestHang(t *testing.T) {
	d := fake.Start(t, socket(t), echo)
	d.Cut, d.Hang = 10, true
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := Dial(ctx, d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Call("echo")
	wantError(t, err, "echo: no complete reply within ")
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	pidfile := filepath.Join(dir, "ovs-vswitchd.pid")
	if path, err := Socket(dir, "/run/x.ctl"); path != "/run/x.ctl" || err != nil {
		t.Error(path, err)
	}
	_, err := Socket(dir, "ovs-vswitchd")
	wantError(t, err, "no such file")
	for text, want := range map[string]string{
		"": "", "x": "", "-3\n": "",
		"17\n": filepath.Join(dir, "ovs-vswitchd.17.ctl"),
	} {
		if err := os.WriteFile(pidfile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		path, err := Socket(dir, "ovs-vswitchd")
		if path != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, path, err)
		}
	}
}

// asNobody runs 'f' without the right to use root's files.
func asNobody(t *testing.T, f func()) {
	const nobody = 65534
	if os.Geteuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsgid(nobody); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		syscall.Setfsuid(0)
		syscall.Setfsgid(0)
	}()
	f()
}

func TestPermission(t *testing.T) {
	// Not t.TempDir(), which nobody else may search.
	dir, err := os.MkdirTemp("", "unixctl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ctl")
	fake.Start(t, path, echo)
	for _, c := range []struct {
		mode, dirMode os.FileMode
		want          string
	}{
		{0o000, 0o755, path + " belongs to user "},
		{0o777, 0o000, dir + " belongs to user "},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.dirMode); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() { _, err = Dial(context.Background(), path) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		wantError(t, err, "permission denied: "+c.want+userName(uint32(os.Geteuid())))
		wantError(t, err, " and group "+groupName(uint32(os.Getegid()))+" (mode 0000), this program runs as user ")
	}
}
