import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import { shared } from '../strings.ts';
import { ApiProblem } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Choice, TextField } from '../ui/field.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import type { CreateForm, FormField } from './section.ts';
import { api } from './session.ts';
import { gateway } from './strings.ts';

export interface CreateDialogProps {
  path: string;
  form: CreateForm;
  close: () => void;
  /** Called once something was created. */
  done: (id: string) => void;
}

/** The form that creates an item; a token in the answer is shown once. */
export function CreateDialog({ path, form, close, done }: CreateDialogProps): JSX.Element {
  const values = useSignal<Readonly<Record<string, string>>>({});
  const problem = useSignal<ApiProblem | null>(null);
  const busy = useSignal(false);
  const created = useSignal<{ id: string; token: string } | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy.value) return;
    busy.value = true;
    problem.value = null;
    try {
      const { id, token } = await api<{ id: string; token?: string }>('POST', path, form.body(values.value));
      if (token) created.value = { id, token };
      else done(id);
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      problem.value = error;
    }
    busy.value = false;
  };
  if (created.value) return <ShownOnce {...created.value} onClose={() => done(created.value?.id ?? '')} />;
  return (
    <Dialog title={form.label} onClose={close}>
      <form onSubmit={submit} noValidate>
        {problem.value && <ProblemNotice title={gateway.form.failed(form.label)} problem={problem.value} />}
        {form.fields.map((field, place) => (
          <Field
            key={field.name}
            field={field}
            isFirst={place === 0}
            value={values.value[field.name] ?? ''}
            onInput={(value) => {
              values.value = { ...values.value, [field.name]: value };
            }}
          />
        ))}
        <div class="dialog-actions">
          <Button onClick={close}>{shared.cancel}</Button>
          <Button kind="primary" type="submit" busy={busy.value}>
            {form.label}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface FieldOptions {
  field: FormField;
  isFirst: boolean;
  value: string;
  onInput: (value: string) => void;
}

function Field({ field, isFirst, value, onInput }: FieldOptions): JSX.Element {
  const { label, hint = '', kind, options, hints } = field;
  if (kind === 'yes-no' && options) {
    const choices = (['yes', 'no'] as const).map((each) => ({
      value: each,
      label: options[each],
      ...(hints && { hint: hints[each] }),
    }));
    return <Choice label={label} value={value === 'no' ? 'no' : 'yes'} onChange={onInput} options={choices} />;
  }
  if (kind === 'lines') return <Lines label={label} hint={hint} value={value} onInput={onInput} />;
  return <TextField label={label} hint={hint} value={value} onInput={onInput} autofocus={isFirst} />;
}

function Lines({
  label,
  hint,
  value,
  onInput,
}: Omit<FieldOptions, 'field' | 'isFirst'> & Record<'label' | 'hint', string>) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        rows={3}
        spellcheck={false}
        aria-describedby={`${id}-hint`}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <p id={`${id}-hint`} class="hint">
        {hint}
      </p>
    </div>
  );
}

function ShownOnce({ id, token, onClose }: { id: string; token: string; onClose: () => void }): JSX.Element {
  const text = gateway.form;
  return (
    <Dialog title={text.onceTitle} onClose={onClose}>
      <Notice tone="warning">{text.once}</Notice>
      <div class="with-copy">
        <pre>{token}</pre>
        <CopyButton text={token} what={id} />
      </div>
      <div class="dialog-actions">
        <Button kind="primary" onClick={onClose}>
          {text.done}
        </Button>
      </div>
    </Dialog>
  );
}
