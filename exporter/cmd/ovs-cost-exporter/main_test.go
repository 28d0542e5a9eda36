// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovs-cost/exporter/internal/fake"
)

// TestMain is the program itself if a test has started it.
func TestMain(m *testing.M) {
	if os.Getenv("OVS_COST_EXPORTER_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs the program with 'args', as another user if 'as' is not nil,
// until the test ends.
func start(t *testing.T, as *syscall.Credential, args ...string) *fake.Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if as != nil {
		// Whoever it is can't read where Go has built it.
		self = copyProgram(t, self)
	}
	cmd := exec.Command(self, append([]string{
		"--web.listen-address=127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "OVS_COST_EXPORTER_MAIN=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return fake.Run(t, cmd)
}

// copyProgram copies 'path' to where everybody may run it.
func copyProgram(t *testing.T, path string) string {
	t.Helper()
	dir := publicDir(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, name)
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// publicDir returns a new directory that everybody may search, unlike that of
// t.TempDir().
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "exporter")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startDaemon starts a daemon that only pretends, and returns its socket.
func startDaemon(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "ctl")
	fake.Start(t, path, fake.Replies(t, "../../testdata"))
	return path
}

// writeCertificate writes a certificate for 127.0.0.1, and its key, to 'dir',
// and returns a client that trusts it.
func writeCertificate(t *testing.T, dir string) *http.Client {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, file),
			pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return server.Client()
}

// get returns the status of a page, and what is on it.
func get(t *testing.T, client *http.Client, url, user, password string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	reply, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer reply.Body.Close()
	page, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(page)
}

// TestWebConfig asks for the metrics with TLS and a password.
func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	trusting := writeCertificate(t, dir)
	// bcrypt's of "open sesame".
	config := `
tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
basic_auth_users:
  prometheus: $2b$04$LhYsMleNt69dY4ykt3u/U.65TwSME2FPouLe.MikHaZDsFawDzTWy
`
	file := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "--web.config.file="+file,
		"--ovs.target="+startDaemon(t, publicDir(t)))
	const up = "\novs_cost_up{target="
	for _, c := range []struct {
		client         *http.Client
		scheme         string
		user, password string
		status         int
		page           string
	}{
		{trusting, "https", "prometheus", "open sesame", 200, up},
		{trusting, "https", "prometheus", "open barley", 401, "Unauthorized"},
		{trusting, "https", "grafana", "open sesame", 401, "Unauthorized"},
		{trusting, "https", "", "", 401, "Unauthorized"},
		{trusting, "http", "prometheus", "open sesame", 400, "HTTPS server"},
		{http.DefaultClient, "https", "prometheus", "open sesame", 0,
			"certificate signed by unknown authority"},
	} {
		status, page := get(t, c.client, c.scheme+"://"+p.Address+"/metrics",
			c.user, c.password)
		if status != c.status || !strings.Contains(page, c.page) {
			t.Errorf("%s, %q, %q: %d, %.200s", c.scheme, c.user,
				c.password, status, page)
		}
		if status != 200 && strings.Contains(page, up) {
			t.Errorf("%d, and yet metrics", status)
		}
	}
}

// TestUser runs the program as the unit does: as a user of its own, in the
// group that may use the socket.  Without that group, it says whose the socket
// is.
func TestUser(t *testing.T) {
	const group, nobody = 4321, 65534
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := publicDir(t)
	path := startDaemon(t, dir)
	if err := os.Chown(path, 0, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		groups  []uint32
		up, log string
	}{
		{[]uint32{group}, "1", ""},
		{nil, "0", "permission denied: " + path +
			" belongs to user root and group 4321 (mode 0770), this program runs as user nobody"},
	} {
		p := start(t, &syscall.Credential{Uid: nobody, Gid: nobody,
			Groups: c.groups}, "--ovs.target="+path)
		_, page := get(t, http.DefaultClient, "http://"+p.Address+"/metrics", "", "")
		if want := "\novs_cost_up{target=\"" + path + "\"} " + c.up + "\n"; !strings.Contains(page, want) {
			t.Errorf("groups %v: no line %s", c.groups, want)
		}
		if c.log != "" {
			for end := time.Now().Add(fake.Patience); !strings.Contains(p.Logged(), c.log); {
				if time.Now().After(end) {
					t.Fatalf("not logged: %s in %s", c.log, p.Logged())
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}
