package audit

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// event is what is written of one stage of a call: Kubernetes' audit.k8s.io/v1 Event.
type event struct {
	Kind                     string            `json:"kind"`
	APIVersion               string            `json:"apiVersion"`
	Level                    string            `json:"level"`
	AuditID                  string            `json:"auditID"`
	Stage                    Stage             `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     user              `json:"user"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"`
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *objectRef        `json:"objectRef,omitempty"`
	ResponseStatus           *responseStatus   `json:"responseStatus,omitempty"`
	RequestObject            json.RawMessage   `json:"requestObject,omitempty"`
	ResponseObject           json.RawMessage   `json:"responseObject,omitempty"`
	RequestReceivedTimestamp microTime         `json:"requestReceivedTimestamp"`
	StageTimestamp           microTime         `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"`
}

type user struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

type objectRef struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// responseStatus is what the call was answered with: the code is that of Kubernetes over HTTP.
type responseStatus struct {
	Metadata struct{} `json:"metadata"`
	Status   string   `json:"status,omitempty"`
	Message  string   `json:"message,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Code     int      `json:"code"`
}

type microTime time.Time

// MarshalJSON implements json.Marshaler.
func (t microTime) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(`"2006-01-02T15:04:05.000000Z07:00"`)), nil
}

// body is bytes of a message that are made readable only when they are written.
type body struct {
	raw  []byte
	kind protoreflect.MessageType // nil for none
	// omitManagedFields of objects.
	omitManagedFields bool
}

// json is the message as manifests have it: of a write the object, of a patch the patch, of all else the whole message.
func (b body) json() json.RawMessage {
	if b.kind == nil || b.raw == nil {
		return nil
	}
	m := b.kind.New().Interface()
	if err := proto.Unmarshal(b.raw, m); err != nil {
		return nil // the call was refused for it
	}
	if p, ok := m.(*metav1.PatchRequest); ok && json.Valid(p.GetPatch()) {
		return p.GetPatch()
	}
	if fd := m.ProtoReflect().Descriptor().Fields().ByName("object"); fd != nil && fd.Message() != nil && !fd.IsList() {
		m = m.ProtoReflect().Get(fd).Message().Interface()
	}
	if o, ok := m.(interface{ GetMetadata() *metav1.ObjectMeta }); ok && b.omitManagedFields && o.GetMetadata() != nil {
		o.GetMetadata().ManagedFields = nil
	}
	text, err := manifest.ToJSON(m)
	if err != nil {
		return nil
	}
	return text
}
