import type { JSX } from 'preact';
import { CodeEditor } from '../ui/code-editor.tsx';
import { Choice } from '../ui/field.tsx';
import type { PolicyDraft } from './policy-draft.ts';

/** Writes a policy, in YAML or JSON, with examples to begin with. */
export function PolicyEditor({ draft }: { draft: PolicyDraft }): JSX.Element {
  return (
    <div class="policy">
      <Choice
        label="Format"
        value={draft.format.value}
        options={[
          { value: 'yaml', label: 'YAML' },
          { value: 'json', label: 'JSON' },
        ]}
        onChange={(format) => void draft.use(format)}
      />
      {draft.isReplaceable && (
        <fieldset class="field chips">
          <legend class="hint">Begin with:</legend>
          {POLICY_EXAMPLES.map(({ name, policy }) => (
            <button key={name} type="button" class="chip" onClick={() => void draft.show(policy)}>
              {name}
            </button>
          ))}
        </fieldset>
      )}
      <CodeEditor
        label="Traffic policy"
        value={draft.text.value}
        onInput={(value) => draft.edit(value)}
        problems={draft.problems.value}
        hint="Rules by phase: on_tcp_connect, on_http_request and on_http_response."
      />
    </div>
  );
}

/** Policies to begin with. */
const POLICY_EXAMPLES: readonly { name: string; policy: object }[] = [
  {
    name: 'Password',
    policy: {
      on_http_request: [
        { actions: [{ type: 'basic-auth', config: { credentials: ['user:choose-a-long-password'] } }] },
      ],
    },
  },
  {
    name: 'Allowed addresses',
    policy: {
      on_http_request: [{ actions: [{ type: 'restrict-ips', config: { allow: ['203.0.113.0/24'] } }] }],
    },
  },
  {
    name: 'Rate limit',
    policy: {
      on_http_request: [
        {
          actions: [
            {
              type: 'rate-limit',
              config: {
                name: 'per client',
                algorithm: 'sliding_window',
                capacity: 60,
                rate: '1m',
                bucket_key: ['conn.client_ip'],
              },
            },
          ],
        },
      ],
    },
  },
  {
    name: 'Response header',
    policy: {
      on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { 'x-served-by': 'my device' } } }] }],
    },
  },
];
