package libvirt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/vm/libvirttest"
)

// startTLS starts a daemon that is also reachable by TCP with TLS, at URI. The daemon and its clients require each
// other's certificates, which are in directory pki below Dir and valid for a day.
func startTLS() (*libvirttest.Daemon, error) {
	return libvirttest.StartWith(func(d *libvirttest.Daemon) ([]string, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		pki := filepath.Join(d.Dir, "pki")
		if err := writeCertificates(pki); err != nil {
			return nil, err
		}
		config := fmt.Sprintf("listen_tls = 1\nlisten_addr = \"127.0.0.1\"\ntls_port = \"%d\"\nauth_tls = "+
			"\"none\"\nkey_file = \"%s/serverkey.pem\"\ncert_file = \"%s/servercert.pem\"\nca_file = "+
			"\"%s/cacert.pem\"\n",
			port, pki, pki, pki)
		path := filepath.Join(d.Dir, "libvirtd.conf")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			return nil, err
		}
		d.Listens = fmt.Sprintf("127.0.0.1:%d", port)
		d.URI = fmt.Sprintf("qemu+tls://127.0.0.1:%d/session?pkipath=%s", port, pki)
		return []string{"--listen", "--config", path}, nil
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func writeCertificates(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "rackless test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	key, err := certify(dir, "ca", ca, nil, nil)
	server := &x509.Certificate{
		Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if err == nil {
		_, err = certify(dir, "server", server, ca, key)
	}
	client := &x509.Certificate{Subject: pkix.Name{CommonName: "client"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if err == nil {
		_, err = certify(dir, "client", client, ca, key)
	}
	return err
}

// certify writes NAMEcert.pem, signed by the issuer or by itself, and NAMEkey.pem.
func certify(dir, name string, c, issuer *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if issuer == nil {
		issuer, signer = c, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return key, errors.Join(write(name+"cert.pem", "CERTIFICATE", cert), write(name+"key.pem", "PRIVATE KEY", private))
}
