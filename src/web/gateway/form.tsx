import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useId } from 'preact/hooks';
import { ApiProblem } from '../ui/api.ts';
import { Checked, Choice, Notes, type NumberBounds, NumberField, TextArea, TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { attempt } from '../ui/submission.ts';

/** An item that a field refers to. */
export interface Option {
  value: string;
  label: string;
  hint?: string;
}

/** A field of a form. */
export interface FormField {
  /** The key of its value. */
  name: string;
  /** The member of the request that it becomes; left out: the one with its name. */
  member?: string;
  label: string;
  hint?: string;
  /**
   * `lines`: one value on each line; `code`: PEM or a policy; `choice`: a few fixed options; `one-of` and `some-of`: other
   * items, whose ids are the value, one on each line.
   */
  kind: 'text' | 'number' | 'lines' | 'code' | 'choice' | 'one-of' | 'some-of';
  /** What to enter or choose, said when it is empty; left out: it may be empty. */
  required?: string;
  /** Left out: always. */
  isShown?: (values: FormValues) => boolean;
  /** For `number`. */
  bounds?: NumberBounds;
  /** For `choice`: the first one is the default. */
  options?: readonly Option[];
  /** For `one-of` and `some-of`. */
  load?: () => Promise<readonly Option[]>;
}

export type FormValues = Readonly<Record<string, string>>;

/** What is shown once, after the API has answered. */
export interface ShownOnce {
  /** What to copy. */
  text: string;
  /** What a QR code has. */
  qr?: string;
  /** What to do with it. */
  note?: string;
  /** The title where it is no secret, but what came of it. */
  outcome?: string;
}

/** A form whose values become the body of a request. */
export interface ItemForm {
  /** Of the button that opens it, of its title and, for a new item, of the button that sends it. */
  label: string;
  fields: readonly FormField[];
  /** What the fields show at first. */
  values?: FormValues;
  body: (values: FormValues) => object;
  /** A secret in the answer; null without one. */
  once?: (answer: Readonly<Record<string, unknown>>) => ShownOnce | null;
}

/** The fields that a form shows. */
export function shownFields(fields: readonly FormField[], values: FormValues): readonly FormField[] {
  return fields.filter(({ isShown }) => isShown?.(values) ?? true);
}

/** A member of a request, an element of it, and what the API says about them: `acl.0: must be …`. */
const PLACED = /^(\w+)(?:\.([^:]+))?: (.+)$/s;

/** The API's problem with the field that it is about, if a form has one, as a detail under the name of the field. */
export function placedIn(fields: readonly FormField[], values: FormValues, problem: ApiProblem): ApiProblem {
  const [, member = '', element, text = ''] = PLACED.exec(problem.message) ?? [];
  const field = fields.find((each) => (each.member ?? each.name) === member);
  if (field === undefined) return problem;
  const { name, kind } = field;
  // Which of several lines it is.
  const line =
    element === undefined || kind !== 'lines' ? undefined : (textLines(values[name])[Number(element)] ?? element);
  const said = line === undefined ? text : `${line}: ${text}`;
  return new ApiProblem(problem.status, problem.code, `${name}: ${said}`, { [name]: said });
}

/** The lines of a text that are not empty. */
export function textLines(text = ''): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

/** The members with a text. */
export function filled(values: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const entries = Object.entries(values).map(([name, value = '']) => [name, value.trim()] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== ''));
}

/** `name=value` and `name: value` lines as an object. A line without the separator may have the other one. */
export function pairsOf(text = '', separator: '=' | ':' = '='): Record<string, string> {
  const pairs = textLines(text).map((line) => {
    const [name = ''] = line.split(line.includes(separator) ? separator : /[=:]/, 1);
    return [name.trim(), line.slice(name.length + 1).trim()];
  });
  return Object.fromEntries(pairs);
}

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
    void attempt(problem, async () => {
      if (field.load) options.value = await field.load();
    });
  }, []);
  if (problem.value) return <ProblemNotice title="The list could not be loaded" problem={problem.value} />;
  if (options.value === null) return <p class="with-spinner">Loading…</p>;
  // What is chosen but no longer listed, such as a deleted item, stays visible.
  const missing = textLines(value).filter((id) => !options.value?.some((option) => option.value === id));
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
  const chosen = new Set(textLines(value));
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
