import { type Signal, useSignal } from '@preact/signals';
import type { InputHTMLAttributes, JSX } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';

const wholeNumber = (min: number, max: number) =>
  `Enter a whole number from ${min.toLocaleString('en')} to ${max.toLocaleString('en')}.`;

export interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  /** What is wrong with the value. */
  problem?: string | undefined;
  type?: 'text' | 'password' | 'search';
  inputmode?: 'numeric';
  autofocus?: boolean;
  autocomplete?: string;
  placeholder?: string;
  hiddenLabel?: boolean;
}

/** Keeps what a field reports. */
export function setter<T>(signal: Signal<T>): (value: T) => void {
  return (value) => {
    signal.value = value;
  };
}

/** A labelled text field; its hint and its problem are read with it. */
export function TextField({
  label,
  value,
  onInput,
  hint,
  problem,
  hiddenLabel = false,
  ...input
}: FieldProps): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id} class={hiddenLabel ? 'visually-hidden' : ''}>
        {label}
      </label>
      <input
        id={id}
        value={value}
        spellcheck={false}
        autocapitalize="off"
        autocomplete="off"
        {...(input as InputHTMLAttributes<HTMLInputElement>)}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-hint ${id}-problem`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <Notes id={id} hint={hint} problem={problem} />
    </div>
  );
}

type Checkable = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;
const FIELDS = 'input, textarea, select';

/** Which whole numbers a field takes. */
export interface NumberBounds {
  min: number;
  max: number;
  /** Whether the field may be empty. */
  canBeEmpty?: boolean;
}

export interface CheckedProps {
  /** What is wrong with the value; undefined: nothing. */
  problem: string | undefined;
  /** The field, with what it says is wrong. */
  field: (shown: string | undefined) => JSX.Element;
}

/**
 * Checks a field in the browser. The field says what is wrong once {@link isComplete} has asked its form: not when the focus
 * leaves, as that would move the button that is being clicked.
 */
export function Checked({ problem, field }: CheckedProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const isAsked = useSignal(false);
  useLayoutEffect(() => element.current?.querySelector<Checkable>(FIELDS)?.setCustomValidity(problem ?? ''));
  return (
    <div
      ref={element}
      onInvalidCapture={() => {
        isAsked.value = true;
      }}
    >
      {field(isAsked.value ? problem : undefined)}
    </div>
  );
}

/**
 * A labelled field for a whole number, which is {@link Checked}.
 * A text field, as browsers report an empty value for a field of type `number` that contains other text.
 */
export function NumberField({
  bounds,
  problem,
  ...field
}: Omit<FieldProps, 'type'> & { bounds: NumberBounds }): JSX.Element {
  return (
    <Checked
      problem={numberProblem(field.value, bounds)}
      field={(shown) => <TextField {...field} inputmode="numeric" problem={shown ?? problem} />}
    />
  );
}

function numberProblem(value: string, { min, max, canBeEmpty = false }: NumberBounds): string | undefined {
  const text = value.trim();
  if (text === '') return canBeEmpty ? undefined : wholeNumber(min, max);
  return /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max ? undefined : wholeNumber(min, max);
}

/** Whether all fields of a form are valid; if not, each shows its problem, and the first one takes the focus. */
export function isComplete(form: EventTarget | null): boolean {
  if (!(form instanceof HTMLFormElement) || form.checkValidity()) return true;
  form.querySelector<HTMLElement>(`:is(${FIELDS}):invalid`)?.focus();
  return false;
}

/** A labelled text field of several lines. */
export function TextArea({
  label,
  value,
  onInput,
  hint,
  problem,
  rows,
  autofocus = false,
  isCode = true,
}: Pick<FieldProps, 'label' | 'value' | 'onInput' | 'hint' | 'problem' | 'autofocus'> & {
  rows: number;
  /** Whether each character matters. */
  isCode?: boolean;
}): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class={isCode ? 'code' : ''}
        rows={rows}
        autofocus={autofocus}
        value={value}
        spellcheck={false}
        autocapitalize="off"
        autocomplete="off"
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-hint ${id}-problem`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <Notes id={id} hint={hint} problem={problem} />
    </div>
  );
}

/** What `aria-describedby` of the field with this id names. */
export function Notes({
  id,
  hint,
  problem,
}: { id: string } & Record<'hint' | 'problem', string | undefined>): JSX.Element {
  return (
    <>
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
      <FieldProblem id={`${id}-problem`} text={problem} />
    </>
  );
}

/** A problem at its place; screen readers read it when it appears. */
export function FieldProblem({ id, text }: { id?: string; text: string | undefined }): JSX.Element {
  return (
    <p id={id} class="problem" role="alert" hidden={text === undefined}>
      {text}
    </p>
  );
}

export interface SelectFieldProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; label: string }[];
  onChange: (value: T) => void;
  hiddenLabel?: boolean;
}

/** One of several values, in a menu. */
export function SelectField<T extends string>({
  label,
  value,
  options,
  onChange,
  hiddenLabel = false,
}: SelectFieldProps<T>): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id} class={hiddenLabel ? 'visually-hidden' : ''}>
        {label}
      </label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </div>
  );
}

export interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; label: string; hint?: string }[];
  onChange: (value: T) => void;
  /** What is wrong with the value. */
  problem?: string | undefined;
}

/** One of a few values. */
export function Choice<T extends string>({ label, value, options, onChange, problem }: ChoiceProps<T>): JSX.Element {
  const id = useId();
  const hint = options.find((option) => option.value === value)?.hint;
  return (
    <fieldset class="field choice">
      <legend>{label}</legend>
      <div class="segments">
        {options.map((option) => (
          <label key={option.value}>
            <input type="radio" name={id} checked={option.value === value} onChange={() => onChange(option.value)} />
            <span>{option.label}</span>
          </label>
        ))}
      </div>
      {hint !== undefined && <p class="hint">{hint}</p>}
      {problem !== undefined && <FieldProblem text={problem} />}
    </fieldset>
  );
}
