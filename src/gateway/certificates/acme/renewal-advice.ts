import { z } from 'zod';
import type { RenewalAdvice } from '../issuing/certificate-issuer.ts';
import { AcmeProblem } from './acme-conversation.ts';
import { type AcmeRequests, readAnswer } from './acme-requests.ts';
import { renewalId } from './request-certificates.ts';

/** It goes to the log. */
const MAX_URL = 500;

const renewalInfo = z.object({
  suggestedWindow: z.object({ start: z.string(), end: z.string() }),
  explanationURL: z.string().max(MAX_URL).optional().catch(undefined),
});

/** @returns null when the CA does not say, or does not know the certificate */
export async function askRenewalAdvice(requests: AcmeRequests, certificatePem: string): Promise<RenewalAdvice | null> {
  const { renewalInfo: base } = await requests.directory();
  const id = base === undefined ? null : renewalId(certificatePem);
  if (base === undefined || id === null) return null;
  const { conversation } = requests;
  try {
    const answer = readAnswer(await conversation.send(`${base}/${id}`, 'GET', null), renewalInfo);
    const { start, end } = answer.suggestedWindow;
    const window = { start: Date.parse(start), end: Date.parse(end) };
    // RFC 9773, section 4.2: ignore a window that ends before it starts.
    if (!(window.end > window.start)) return null;
    return { ...window, why: answer.explanationURL ?? null, askAgainS: conversation.retryAfter };
  } catch (error) {
    // It was issued by another CA, such as the one in the settings before.
    if (error instanceof AcmeProblem && error.status === 404) return null;
    throw error;
  }
}
