/** Questions as their receivers want them. */
import { KintsugiError } from '../../common/errors.js';
import type { Message } from '../../protocol/messages.js';
import { toMessage } from '../../protocol/validate.js';

/**
 * Refuses a malformed question: its receiver would take the client for a broken peer, and close the
 * connection. The question would be asked again on the next one, and so would no other be answered.
 * @throws BAD_ARGUMENT with the name of the field
 */
export function checkQuestion(message: Message): void {
  try {
    toMessage(message as unknown as Record<string, unknown>);
  } catch (error) {
    if (!(error instanceof KintsugiError)) throw error;
    throw new KintsugiError('BAD_ARGUMENT', `this cannot be asked: ${error.message}`, { cause: error });
  }
}
