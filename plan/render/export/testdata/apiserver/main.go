// Program apiserver runs a kube-apiserver and the etcd that it needs for a test: apiserver DIR PORT TOKEN. It keeps
// all data in the directory, listens on 127.0.0.1, and gives full access to clients with the token.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	args, err := prepare(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	cmd := app.NewAPIServerCommand()
	cmd.SetArgs(args)
	os.Exit(cli.Run(cmd))
}

func prepare(dir, port, token string) ([]string, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = filepath.Join(dir, "etcd"), "error"
	here := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = here, here
	config.ListenPeerUrls, config.AdvertisePeerUrls = here, here
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	e, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	<-e.Server.ReadyNotify()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	keys, tokens := filepath.Join(dir, "key.pem"), filepath.Join(dir, "tokens")
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(keys, text, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(tokens, []byte(token+",test,test,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	return []string{"--etcd-servers=http://" + e.Clients[0].Addr().String(), "--bind-address=127.0.0.1",
		"--secure-port=" + port, "--cert-dir=" + filepath.Join(dir, "certificates"), "--token-auth-file=" + tokens,
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + keys,
		"--service-account-signing-key-file=" + keys, "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"}, nil
}
