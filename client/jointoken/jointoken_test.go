package jointoken_test

import (
	"strings"
	"testing"
	"time"

	"trireme.dev/client/jointoken"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const pin = "abcdefghijklmnopqrstuvwxyz234567"

func TestTokenIsCarriedAndStored(t *testing.T) {
	token := jointoken.New(pin)
	if again, err := jointoken.Parse(token.String()); err != nil || again != token {
		t.Errorf("Parse(%s) = %+v, %v", token, again, err)
	}
	if jointoken.New(pin) == token {
		t.Error("the same token twice")
	}
	want := jointoken.Stored{Token: token, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Description: "rack 7", Joins: true}
	want.Pin = ""
	secret := want.Object()
	if secret.GetMetadata().GetName() != "bootstrap-token-"+token.ID || string(secret.Data["expiration"]) != "2030-01-02T03:04:05Z" {
		t.Errorf("secret %v", secret)
	}
	if got, err := jointoken.FromSecret(secret); err != nil || got != want {
		t.Errorf("FromSecret = %+v, %v, want %+v", got, err, want)
	}
	if !want.Expired(want.Expires) || want.Expired(want.Expires.Add(-time.Second)) || (jointoken.Stored{}).Expired(time.Now()) {
		t.Error("expiry is judged wrongly")
	}
}

func TestWordsThatAreNoTokens(t *testing.T) {
	good := jointoken.New(pin).String()
	for _, text := range []string{"", "abc", good[:len(good)-1], good + "x", strings.ToUpper(good), good[:23], " " + good} {
		if _, err := jointoken.Parse(text); err == nil || strings.Contains(err.Error(), "\n") || (len(text) > 5 && strings.Contains(err.Error(), text)) {
			t.Errorf("Parse(%q): %v", text, err)
		}
	}
}

func TestSecretsThatAreNoTokens(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"another name":    func(s *corev1.Secret) { s.Metadata.Name = "bootstrap-token-zzzzzz" },
		"another type":    func(s *corev1.Secret) { s.Type = nil },
		"short secret":    func(s *corev1.Secret) { s.Data["token-secret"] = []byte("short") },
		"no ID":           func(s *corev1.Secret) { delete(s.Data, "token-id") },
		"expires somehow": func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") },
	} {
		secret := jointoken.Stored{Token: jointoken.New("")}.Object()
		change(secret)
		if got, err := jointoken.FromSecret(secret); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
