import type { JSX } from 'preact';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { useSubmission } from '../ui/submission.ts';
import type { Action } from './section.ts';
import { api } from './session.ts';

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
