package image

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Keys are PEM, PKCS #8 and PKIX, as of "openssl genpkey -algorithm ed25519" and "openssl pkey -pubout".

// ParsePrivateKey reads Export's key.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	return parseKey[ed25519.PrivateKey](text, "PRIVATE KEY", x509.ParsePKCS8PrivateKey)
}

// ParsePublicKey reads Import's key.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	return parseKey[ed25519.PublicKey](text, "PUBLIC KEY", x509.ParsePKIXPublicKey)
}

func parseKey[K any](text []byte, kind string, parse func([]byte) (any, error)) (key K, err error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return key, fmt.Errorf("want a PEM file with a %s", kind)
	}
	any, err := parse(block.Bytes)
	if err != nil {
		return key, err
	}
	key, ok := any.(K)
	if !ok {
		return key, errors.New("want a key for Ed25519: openssl genpkey -algorithm ed25519")
	}
	return key, nil
}
