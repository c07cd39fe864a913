// Package jointoken is what a machine shows to become a node: a word that a person carries to it, and the Secret by which
// the gateway knows it again, laid out as Kubernetes' bootstrap tokens are.
//
// The word is ID.SECRET.PIN. ID is public and names the Secret kube-system/bootstrap-token-ID, SECRET is what is proved,
// PIN is the beginning of the SHA-256 of the CA's public key (kit/pki.Pin): by it the machine knows the gateway before it
// has the CA, and shows its token to nobody else. The package neither stores nor checks tokens.
package jointoken

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// Namespace of the Secrets.
	Namespace = "kube-system"
	// SecretType of the Secrets.
	SecretType = "bootstrap.kubernetes.io/token"
	// DefaultTTL is how long a token is good for unless said otherwise.
	DefaultTTL = 24 * time.Hour

	namePrefix = "bootstrap-token-"
	alphabet   = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength   = 6
	// secretLength letters have 82 bits.
	secretLength = 16

	keyID          = "token-id"
	keySecret      = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyUsage       = "usage-bootstrap-authentication"
)

// Token is the word in its parts.
type Token struct {
	// ID names the token, Secret proves it.
	ID, Secret string
	// Pin names the CA; empty in what is sent to the gateway, which needs none.
	Pin string
}

var (
	word        = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})\.([a-z2-7]{32})$`)
	credentials = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
)

// New makes a token of chance.
func New(pin string) Token {
	return Token{ID: letters(idLength), Secret: letters(secretLength), Pin: pin}
}

// letters of the alphabet, each as likely as the others.
func letters(n int) string {
	out := make([]byte, 0, n)
	var random [64]byte
	for {
		_, _ = rand.Read(random[:]) // it never fails
		for _, b := range random {
			if int(b) >= 256/len(alphabet)*len(alphabet) {
				continue // would make the first letters likelier
			}
			if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
				return string(out)
			}
		}
	}
}

// Parse reads the word that a person carries. The error does not repeat it: it may be nearly right, and end in a log.
func Parse(text string) (Token, error) {
	m := word.FindStringSubmatch(text)
	if m == nil {
		return Token{}, fmt.Errorf("a token has the form ID.SECRET.PIN (6, 16 and 32 letters), this one has %d characters in another form: "+
			"copy it whole, as `trireme token create` prints it", len(text))
	}
	return Token{ID: m[1], Secret: m[2], Pin: m[3]}, nil
}

// ParseCredentials reads ID.SECRET.
func ParseCredentials(text string) (Token, bool) {
	m := credentials.FindStringSubmatch(text)
	if m == nil {
		return Token{}, false
	}
	return Token{ID: m[1], Secret: m[2]}, true
}

// String gives the word.
func (t Token) String() string { return t.Credentials() + "." + t.Pin }

// Credentials is what the gateway wants to see: ID.SECRET.
func (t Token) Credentials() string { return t.ID + "." + t.Secret }

// Stored is a token as the gateway keeps it.
type Stored struct {
	// Token without its pin.
	Token
	// Expires is when it ends; zero means never.
	Expires time.Time
	// Description for people.
	Description string
	// Joins says that machines may join by it; a Secret of the type may be meant for something else.
	Joins bool
}

// SecretName is the name of a token's Secret.
func SecretName(id string) string { return namePrefix + id }

// ValidID reports whether a text can be a token's ID.
func ValidID(id string) bool { _, ok := ParseCredentials(id + "." + "0123456789abcdef"); return ok }

// Expired reports whether the token has ended.
func (s Stored) Expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

// Object gives the Secret.
func (s Stored) Object() *corev1.Secret {
	secret := &corev1.Secret{
		Metadata: &metav1.ObjectMeta{Namespace: Namespace, Name: SecretName(s.ID)},
		Type:     proto.String(SecretType),
		Data:     map[string][]byte{keyID: []byte(s.ID), keySecret: []byte(s.Secret)},
	}
	if s.Joins {
		secret.Data[keyUsage] = []byte("true")
	}
	if !s.Expires.IsZero() {
		secret.Data[keyExpiration] = []byte(s.Expires.UTC().Format(time.RFC3339))
	}
	if s.Description != "" {
		secret.Data[keyDescription] = []byte(s.Description)
	}
	return secret
}

// FromSecret reads a Secret. One that contradicts itself is an error: nobody may join by it.
func FromSecret(secret *corev1.Secret) (Stored, error) {
	name := secret.GetMetadata().GetName()
	data := secret.GetData()
	t, ok := ParseCredentials(string(data[keyID]) + "." + string(data[keySecret]))
	if !ok || secret.GetType() != SecretType || name != SecretName(t.ID) {
		return Stored{}, fmt.Errorf("secret %s is no bootstrap token: its type, name, %s and %s do not fit", name, keyID, keySecret)
	}
	s := Stored{Token: t, Description: string(data[keyDescription]), Joins: string(data[keyUsage]) == "true"}
	if text := string(data[keyExpiration]); text != "" {
		var err error
		if s.Expires, err = time.Parse(time.RFC3339, text); err != nil {
			return Stored{}, fmt.Errorf("secret %s: %s: %w", name, keyExpiration, err)
		}
	}
	return s, nil
}
