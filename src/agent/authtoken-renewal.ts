import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { writeDurably } from '../lib/files/durable-write.ts';
import type { GatewaySettings } from '../settings/agent-settings.ts';
import { RENEWED_AUTHTOKEN, renewedText } from '../settings/renewed-authtoken.ts';
import { type GatewayLink, SessionRefused } from './connectors/gateway-link.ts';
import type { AgentContext } from './context/agent-context.ts';
import type { EnrolmentRefused, Reaching } from './join/gateway-calls.ts';

/** Somebody has rotated the authtoken, or removed the device. */
const UNKNOWN_AUTHTOKEN = 'ERR_NGROK_107';
/** To a device without a code: it was deleted. */
const UNKNOWN_DEVICE = 'ERR_GATEWAY_CODE_UNKNOWN';
/** A gateway slows down every device behind an address that it has refused. */
const AFTER_REFUSAL_MS = 3_600_000;

/** Fetches another authtoken for a device that has joined, with the key of its installation. */
export class AuthtokenRenewal {
  /** Kept here too, in case that the disk is full. */
  #renewed: { replaced: string; authtoken: string } | null = null;
  /** When the gateway may be asked again, in terms of the clock. */
  #nextAt = Number.NEGATIVE_INFINITY;
  /** Why the gateway gives the device no other one; its answer to the session only says that this one is unknown. */
  #refusal: SessionRefused | null = null;

  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'> & {
      settings: Pick<AgentContext['settings'], 'dataDir'>;
    },
    private readonly gateway: Pick<
      Extract<GatewaySettings, { kind: 'remote' }>,
      'authtoken' | 'configured' | 'serverAddr' | 'proxies' | 'enrolment' | 'ownCa'
    > &
      Pick<Reaching, 'time'>,
  ) {}

  authtoken(): string {
    const present = this.gateway.authtoken();
    return this.#renewed?.replaced === present ? this.#renewed.authtoken : present;
  }

  /** The same link, which renews the authtoken when the gateway does not know it. */
  over(link: GatewayLink): GatewayLink {
    const connect = async () => {
      try {
        return await link.connect();
      } catch (error) {
        const isUnknown = error instanceof SessionRefused && error.code === UNKNOWN_AUTHTOKEN;
        if (!isUnknown) throw error;
        if (await this.#renew()) return link.connect();
        throw this.#refusal ?? error;
      }
    };
    return { ...link, connect };
  }

  async #renew(): Promise<boolean> {
    const { clock, log } = this.context;
    const { gateway } = this;
    const { enrolment } = gateway;
    if (!existsSync(enrolment) || clock.now() < this.#nextAt) return false;
    this.#refusal = null;
    try {
      const { fetchAuthtoken } = await import('./join/gateway-calls.ts');
      const fetched = await fetchAuthtoken(enrolment, gateway);
      // The settings name another gateway by now, or an authtoken that is not the device's own.
      const isHere = fetched?.sessionAddresses.includes(gateway.serverAddr);
      const isOther = isHere && fetched?.authtoken !== this.authtoken();
      if (!fetched || !isOther) return this.#postpone();
      await this.#keep(fetched.authtoken);
      log.info({ device_name: fetched.name }, 'authtoken renewed');
      return true;
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'authtoken not renewed');
      const calls = await import('./join/gateway-calls.ts');
      if (error instanceof calls.EnrolmentRefused) this.#refusal = refusalOf(error);
      return error instanceof OperatorError ? this.#postpone() : false;
    }
  }

  async #keep(authtoken: string): Promise<void> {
    const { settings, log } = this.context;
    const { dataDir } = settings;
    const { gateway } = this;
    this.#renewed = { replaced: gateway.authtoken(), authtoken };
    const text = renewedText(gateway.configured(), authtoken);
    await writeDurably(join(dataDir, RENEWED_AUTHTOKEN), text, 0o600).catch((error: unknown) => {
      log.warn({ reason: messageOf(error) }, 'renewed authtoken not saved');
    });
  }

  #postpone(): false {
    this.#nextAt = this.context.clock.now() + AFTER_REFUSAL_MS;
    return false;
  }
}

function refusalOf({ code, reason }: EnrolmentRefused): SessionRefused {
  return new SessionRefused(code, code === UNKNOWN_DEVICE ? 'the device was deleted on the gateway' : reason);
}
