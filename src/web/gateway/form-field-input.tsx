import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useId } from 'preact/hooks';
import { ApiProblem } from '../ui/api.ts';
import { Checked, Choice, Notes, NumberField, TextArea, TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { type FormField, linesOf, type Option } from './form.ts';

export interface FormFieldInputProps {
  field: FormField;
  /** Whether it takes the focus. */
  isFirst: boolean;
  value: string;
  onInput: (value: string) => void;
  /** What the API says about the value. */
  problem?: string | undefined;
}

/** The input of a form's field. */
export function FormFieldInput(props: FormFieldInputProps): JSX.Element {
  const { field, value, problem } = props;
  if (field.required === undefined) return <Input {...props} />;
  return (
    <Checked
      problem={value.trim() === '' ? field.required : undefined}
      field={(shown) => <Input {...props} problem={shown ?? problem} />}
    />
  );
}

function Input(props: FormFieldInputProps): JSX.Element {
  const { field, isFirst, value, onInput, problem } = props;
  const { label, hint = '', kind, options = [], bounds } = field;
  const input = { label, hint, value, onInput, autofocus: isFirst, problem };
  switch (kind) {
    case 'text':
      return <TextField {...input} />;
    case 'number':
      return <NumberField {...input} bounds={bounds ?? { min: 0, max: Number.MAX_SAFE_INTEGER }} />;
    case 'choice':
      return <Choice {...input} value={value || (options[0]?.value ?? '')} onChange={onInput} options={options} />;
    case 'lines':
    case 'code':
      return <TextArea {...input} rows={kind === 'code' ? 10 : 3} isCode={kind === 'code'} />;
    case 'one-of':
    case 'some-of':
      return <ItemField {...props} />;
  }
}

/** A choice among items that the API lists. */
function ItemField({ field, value, onInput, problem: wrong }: FormFieldInputProps): JSX.Element {
  const options = useSignal<readonly Option[] | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  useEffect(() => {
    field.load?.().then(
      (loaded) => {
        options.value = loaded;
      },
      (error: unknown) => {
        if (!(error instanceof ApiProblem)) throw error;
        problem.value = error;
      },
    );
  }, []);
  if (problem.value) return <ProblemNotice title="The list could not be loaded" problem={problem.value} />;
  if (options.value === null) return <p class="with-spinner">Loading…</p>;
  // What is chosen but no longer listed, such as a deleted item, stays visible.
  const missing = linesOf(value).filter((id) => !options.value?.some((option) => option.value === id));
  const all = [...options.value, ...missing.map((id) => ({ value: id, label: id }))];
  const Choices = field.kind === 'one-of' ? Select : Checkboxes;
  return <Choices field={field} options={all} value={value} onInput={onInput} problem={wrong} />;
}

interface ItemInputProps extends Omit<FormFieldInputProps, 'isFirst'> {
  options: readonly Option[];
}

function Select({ field: { label, hint }, options, value, onInput, problem }: ItemInputProps): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-hint ${id}-problem`}
        onInput={(event) => onInput(event.currentTarget.value)}
      >
        <option value="">None</option>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {[option.label, option.hint].filter(Boolean).join(' – ')}
          </option>
        ))}
      </select>
      <Notes id={id} hint={hint} problem={problem} />
    </div>
  );
}

function Checkboxes({ field: { label, hint }, options, value, onInput, problem }: ItemInputProps): JSX.Element {
  const id = useId();
  const chosen = new Set(linesOf(value));
  const toggle = (id: string) => {
    if (!chosen.delete(id)) chosen.add(id);
    onInput([...chosen].join('\n'));
  };
  return (
    <fieldset class="field" aria-describedby={`${id}-hint ${id}-problem`}>
      <legend>{label}</legend>
      <div class="checkboxes">
        {options.map((option) => (
          <label key={option.value}>
            <input type="checkbox" checked={chosen.has(option.value)} onChange={() => toggle(option.value)} />
            <span>
              {option.label}
              {option.hint !== undefined && <span class="below">{option.hint}</span>}
            </span>
          </label>
        ))}
        {options.length === 0 && <p class="hint">There is nothing to choose yet.</p>}
      </div>
      <Notes id={id} hint={hint} problem={problem} />
    </fieldset>
  );
}
