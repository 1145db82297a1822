import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { Button, CopyButton } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { useSubmission } from '../ui/submission.ts';
import { FormFieldInput, type FormValues, type ItemForm, placedIn, type ShownOnce, shownFields } from './form.tsx';
import type { Action } from './section.ts';
import { api } from './session.ts';

/** The request that a form sends. */
export interface FormRequest {
  method: 'POST' | 'PATCH' | 'PUT';
  path: string;
  form: ItemForm;
}

export interface FormDialogProps extends FormRequest {
  close: () => void;
  /** Called with the API's answer, and once a secret in it was shown. */
  done: (answer: Readonly<Record<string, unknown>>) => void | Promise<void>;
}

/** An action that sends a form. */
export function edited({ name, label, ...request }: FormRequest & { name: string; label: string }): Action {
  return { name, label, dialog: (close, done) => <FormDialog {...request} close={close} done={done} /> };
}

/** A form in a dialog; a secret in the answer is shown once. */
export function FormDialog({ method, path, form, close, done }: FormDialogProps): JSX.Element {
  const values = useSignal<FormValues>(form.values ?? {});
  const { busy, problem: raised, onSubmit } = useSubmission();
  const secret = useSignal<{ once: ShownOnce; answer: Readonly<Record<string, unknown>> } | null>(null);
  const send = async () => {
    const answer = await api<Record<string, unknown>>(method, path, form.body(values.value));
    const once = form.once?.(answer) ?? null;
    if (once) secret.value = { once, answer };
    else await done(answer);
  };
  if (secret.value) {
    const { once, answer } = secret.value;
    return <OnceDialog {...once} onClose={() => void done(answer)} />;
  }
  const fields = shownFields(form.fields, values.value);
  const problem = raised && placedIn(fields, values.value, raised);
  const isNew = method === 'POST';
  return (
    <Dialog title={form.label} onClose={close} wide={form.fields.some(({ kind }) => kind === 'code')} hasFocusField>
      <form onSubmit={onSubmit(send)} noValidate>
        {problem && (
          <ProblemNotice
            title={isNew ? `${form.label} failed` : 'The changes were not saved'}
            problem={problem}
            isMarked={(place) => fields.some(({ name }) => name === place)}
          />
        )}
        {fields.map((field, place) => (
          <FormFieldInput
            key={field.name}
            field={field}
            isFirst={place === 0}
            value={values.value[field.name] ?? ''}
            problem={problem?.details[field.name]}
            onInput={(value) => {
              values.value = { ...values.value, [field.name]: value };
            }}
          />
        ))}
        <div class="dialog-actions">
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy}>
            {isNew ? form.label : 'Save'}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function OnceDialog({ text, qr, note, outcome, onClose }: ShownOnce & { onClose: () => void }): JSX.Element {
  return (
    <Dialog title={outcome ?? 'Copy it now'} onClose={onClose}>
      {outcome === undefined ? (
        <>
          <Notice tone="warning">It is shown only once: the gateway stores no copy.</Notice>
          <div class="with-copy">
            <pre>{text}</pre>
            <CopyButton text={text} what="the secret" />
          </div>
        </>
      ) : (
        <p class="url">{text}</p>
      )}
      {note !== undefined && <p>{note}</p>}
      {qr !== undefined && <QrCode text={qr} label="QR code" />}
      <div class="dialog-actions">
        <Button kind="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}

export interface Confirmation {
  name: string;
  label: string;
  title: string;
  /** What it does or stops, each a sentence. */
  effects: readonly string[];
  submit: string;
  /** Whether the effects stop something. */
  isDestructive: boolean;
  run: () => Promise<unknown>;
}

/** An action that says what it does, and asks, before it does it. */
export function confirmed(options: Confirmation): Action {
  const { name, label } = options;
  return { name, label, dialog: (close, done) => <ConfirmDialog {...options} close={close} done={done} /> };
}

/** The action that deletes an item. */
export function removal({
  path,
  label = 'Delete',
  ...words
}: Pick<Confirmation, 'title' | 'effects' | 'submit'> & { path: string; label?: string }): Action {
  return confirmed({ ...words, name: 'delete', label, isDestructive: true, run: () => api('DELETE', path) });
}

function ConfirmDialog({
  title,
  effects,
  submit,
  isDestructive,
  run,
  close,
  done,
}: Confirmation & { close: () => void; done: () => void | Promise<void> }): JSX.Element {
  const submission = useSubmission();
  const { busy, problem } = submission;
  const act = async () => {
    await run();
    await done();
  };
  return (
    <Dialog title={title} onClose={close}>
      {problem && <ProblemNotice title={`${submit} failed`} problem={problem} />}
      {isDestructive && <p>This stops:</p>}
      <ul>
        {effects.map((effect) => (
          <li key={effect}>{effect}</li>
        ))}
      </ul>
      <div class="dialog-actions">
        <Button onClick={close}>Cancel</Button>
        <Button kind={isDestructive ? 'danger' : 'primary'} busy={busy} onClick={() => void submission.run(act)}>
          {submit}
        </Button>
      </div>
    </Dialog>
  );
}
