import type { JSX } from 'preact';
import { device } from '../strings.ts';
import { CodeEditor } from '../ui/code-editor.tsx';
import { Choice } from '../ui/field.tsx';
import type { PolicyDraft } from './policy-draft.ts';
import { POLICY_EXAMPLES } from './policy-examples.ts';

const text = device.policy;

/** Writes a policy, in YAML or JSON, with examples to begin with. */
export function PolicyEditor({ draft }: { draft: PolicyDraft }): JSX.Element {
  return (
    <div class="policy">
      <Choice
        label={text.format}
        value={draft.format.value}
        options={[
          { value: 'yaml', label: 'YAML' },
          { value: 'json', label: 'JSON' },
        ]}
        onChange={(format) => void draft.use(format)}
      />
      {draft.isReplaceable && (
        <fieldset class="field chips">
          <legend class="hint">{text.examples}</legend>
          {POLICY_EXAMPLES.map(({ name, policy }) => (
            <button key={name} type="button" class="chip" onClick={() => void draft.show(policy)}>
              {name}
            </button>
          ))}
        </fieldset>
      )}
      <CodeEditor
        label={text.label}
        value={draft.text.value}
        onInput={(value) => draft.edit(value)}
        problems={draft.problems.value}
        hint={text.hint}
      />
    </div>
  );
}
